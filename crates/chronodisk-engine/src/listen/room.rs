//! Admission of connections, and eviction at the limit: sans-I/O.
//!
//! Every present connection has a peer, a rank and an instant. At the total limit, or at a peer's share, an expendable
//! connection is evicted: of the lowest rank, then of the peer with the most connections, then the oldest.

use std::collections::BTreeMap;

use super::socket::Peer;

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// In total.
    pub most: usize,
    /// For one peer: an address, or a user of this machine.
    pub per_peer: usize,
}

impl Share {
    /// A limit; one peer may use three quarters of it.
    #[must_use]
    pub fn of(most: usize) -> Share {
        Share { most, per_peer: (most * 3).div_ceil(4).max(1) }
    }
}

/// A present connection.
#[derive(Clone, Copy, Debug)]
pub struct Guest<K, T> {
    /// Name of the connection.
    pub key: K,
    /// The peer that owns it.
    pub peer: Peer,
    /// Rank for eviction, the smallest first, and since when; `None` if it must stay.
    pub spare: Option<(u8, T)>,
}

/// Decision on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<K> {
    /// There is room: admit it.
    Welcome,
    /// Admit it after evicting this one.
    Instead(K),
    /// Reject it: the total limit is reached.
    Full,
    /// Reject it: the peer's share is used up.
    PeerFull,
}

/// Decides on one more connection of `peer`.
pub fn admit<K: Copy, T: Copy + Ord>(guests: &[Guest<K, T>], share: Share, peer: Peer) -> Admission<K> {
    let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
    for guest in guests {
        *counts.entry(guest.peer).or_default() += 1;
    }
    let spared = |own: bool| {
        let candidates = guests.iter().filter(|guest| !own || guest.peer == peer);
        let ranked = candidates.filter_map(|guest| {
            let (rank, since) = guest.spare?;
            // A peer never loses a place to a peer with more connections.
            let count = counts[&guest.peer];
            let fair = guest.peer == peer || count >= counts.get(&peer).copied().unwrap_or(0);
            fair.then_some(((rank, std::cmp::Reverse(count), since), guest.key))
        });
        ranked.min_by_key(|(order, _)| *order).map(|(_, key)| key)
    };
    let has_share = counts.get(&peer).copied().unwrap_or(0) >= share.per_peer;
    let full = guests.len() >= share.most;
    match (has_share || full).then(|| spared(has_share)) {
        None => Admission::Welcome,
        Some(Some(key)) => Admission::Instead(key),
        Some(None) if full => Admission::Full,
        Some(None) => Admission::PeerFull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(key: u32, uid: u32, spare: Option<(u8, u64)>) -> Guest<u32, u64> {
        Guest { key, peer: Peer::User(uid), spare }
    }

    #[test]
    fn a_peer_has_its_share_and_the_others_the_rest() {
        let share = Share { most: 4, per_peer: 3 };
        let mut guests: Vec<_> = (0..3).map(|key| guest(key, 1, None)).collect();
        assert_eq!(admit(&guests, share, Peer::User(1)), Admission::PeerFull);
        assert_eq!(admit(&guests, share, Peer::User(2)), Admission::Welcome);
        guests.push(guest(3, 2, None));
        assert_eq!(admit(&guests, share, Peer::User(3)), Admission::Full);
    }

    #[test]
    fn who_can_be_spared_goes_by_rank_then_peer_then_age() {
        let share = Share { most: 5, per_peer: 3 };
        let guests = [
            guest(0, 1, Some((1, 0))),
            guest(1, 2, Some((0, 5))),
            guest(2, 3, Some((0, 9))),
            guest(3, 3, Some((0, 8))),
            guest(4, 3, Some((1, 1))),
        ];
        assert_eq!(admit(&guests, share, Peer::User(9)), Admission::Instead(3));
        // A peer at its share can only replace its own connections.
        assert_eq!(admit(&guests[..4], Share { most: 5, per_peer: 1 }, Peer::User(1)), Admission::Instead(0));
        // A peer with many connections does not evict one of a peer with few.
        let guests = [guest(0, 1, Some((0, 0))), guest(1, 2, None), guest(2, 2, None)];
        assert_eq!(admit(&guests, Share { most: 3, per_peer: 3 }, Peer::User(2)), Admission::Full);
    }

    #[test]
    fn a_share_is_three_quarters_and_never_nothing() {
        assert_eq!(Share::of(16), Share { most: 16, per_peer: 12 });
        assert_eq!(Share::of(1), Share { most: 1, per_peer: 1 });
    }
}
