//! Certificates for tests of TLS.

use std::fs;
use std::path::Path;

use chronodisk_front::nbd::tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Certificates of an authority that is made on the spot, named as QEMU and nbdkit name them.
pub fn certify(directory: &Path) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "authority of tests");
    let ca_key = KeyPair::generate().unwrap();
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    fs::write(directory.join(tls::CA_CERT_FILE), ca_certificate.pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    for (name, host) in [("server", "localhost"), ("client", "client")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(directory.join(format!("{name}-cert.pem")), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }
}
