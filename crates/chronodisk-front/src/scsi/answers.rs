//! Answers to commands that do not use the medium.

use super::unit::{LogicalUnit, Nexus, UnitDescription};
use super::{Command, Decoded, Sense, inquiry, mode, opcodes};

impl LogicalUnit {
    /// The answer to a command that does not use the medium, at most as long as its allocation. `None` for other
    /// commands.
    ///
    /// # Errors
    /// The sense data of a refusal.
    pub fn answer(&self, decoded: &Decoded, nexus: &mut Nexus) -> Result<Option<Vec<u8>>, Sense> {
        let mut answer = match decoded.command {
            Command::TestUnitReady => Vec::new(),
            Command::RequestSense { descriptor } => {
                let sense = self.attention(nexus).unwrap_or(Sense::NOTHING);
                if descriptor { sense.descriptor().to_vec() } else { sense.fixed().to_vec() }
            }
            Command::Inquiry { page: None } => inquiry::standard(self.description()),
            Command::Inquiry { page: Some(page) } => inquiry::vital(self.description(), page)?,
            Command::ReportLuns { select } => report_luns(select),
            Command::ModeSense(sense) => mode::sense(self, &sense)?,
            Command::ReadCapacity { long } => self.capacity(long),
            Command::ReportOpcodes(report) => opcodes::report(self, &report)?,
            Command::ReserveIn { action } => self.reservations().report(action),
            _ => return Ok(None),
        };
        answer.truncate(decoded.allocation_bytes as usize);
        Ok(Some(answer))
    }

    /// Applies the parameters of `MODE SELECT`. Returns whether the cache must be written back.
    ///
    /// # Errors
    /// The sense data of a refusal; nothing has changed then.
    pub fn select_mode(&self, long: bool, parameters: &[u8], nexus: &mut Nexus) -> Result<bool, Sense> {
        let had_cache = self.has_write_cache();
        if let Some(on) = mode::selected_write_cache(self, long, parameters)? {
            self.set_write_cache(on, nexus);
        }
        Ok(had_cache && !self.has_write_cache())
    }

    fn capacity(&self, long: bool) -> Vec<u8> {
        let last = self.blocks().saturating_sub(1);
        let UnitDescription { block_bytes, physical_block_bytes, .. } = *self.description();
        if !long {
            // All ones ask the initiator for the longer command.
            let mut bytes = u32::try_from(last).unwrap_or(u32::MAX).to_be_bytes().to_vec();
            bytes.extend(block_bytes.to_be_bytes());
            return bytes;
        }
        let mut bytes = vec![0; 32];
        bytes[..8].copy_from_slice(&last.to_be_bytes());
        bytes[8..12].copy_from_slice(&block_bytes.to_be_bytes());
        // A number below 32.
        bytes[13] = (physical_block_bytes / block_bytes).max(1).ilog2() as u8;
        if self.description().discard_bytes.is_some() {
            bytes[14] |= 0x80;
            bytes[14] |= if self.description().zeroes_after_discard { 0x40 } else { 0 };
        }
        bytes
    }
}

/// The single unit 0; no well-known unit.
fn report_luns(select: u8) -> Vec<u8> {
    let len = if select == 1 { 0 } else { 8 };
    let mut bytes = vec![0; 8 + len];
    bytes[3] = len as u8;
    bytes
}
