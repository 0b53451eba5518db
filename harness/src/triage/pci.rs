//! A PCI address, the name by which kernel lines call a device.

use std::fmt;

use super::pattern::parse_hex;

/// `domain:bus:device.function`; the function may be unknown (`PCI:0000:01:00`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pci {
    domain: u32,
    bus: u8,
    device: u8,
    function: Option<u8>,
}

impl Pci {
    /// Reads an address such as `0000:c5:00.0`, `c5:00.0` or `PCI:0000:01:00` that fills `b` wholly.
    #[must_use]
    pub fn parse(b: &[u8]) -> Option<Pci> {
        let b = b.strip_prefix(b"PCI:").unwrap_or(b);
        if b.len() > 16 {
            return None;
        }
        let (main, function) = match b.iter().position(|&c| c == b'.') {
            Some(dot) => (&b[..dot], Some(one_hex(&b[dot + 1..])?)),
            None => (b, None),
        };
        let mut parts = main.split(|&c| c == b':');
        let (a, c, d) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let (domain, bus, device) = match d {
            Some(d) => (a, c, d),
            None => (&b"0"[..], a, c),
        };
        if bus.len() != 2 || device.len() != 2 || (d.is_some() && domain.len() < 4) {
            return None;
        }
        Some(Pci {
            domain: u32::try_from(all_hex(domain)?).ok()?,
            bus: u8::try_from(all_hex(bus)?).ok()?,
            device: u8::try_from(all_hex(device)?).ok()?,
            function,
        })
    }

    /// Whether both name functions of the same device (a GPU and its audio function are one device).
    #[must_use]
    pub fn same_device(self, other: Pci) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }

    /// The first address in `text`, with a domain.
    #[must_use]
    pub fn find(text: &str) -> Option<Pci> {
        text.split(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.'))
            .map(|w| w.trim_matches(|c| c == ':' || c == '.'))
            .filter(|w| w.len() >= 10)
            .find_map(|w| Pci::parse(w.as_bytes()))
    }
}

fn all_hex(b: &[u8]) -> Option<u64> {
    (!b.is_empty() && b.iter().all(u8::is_ascii_hexdigit))
        .then(|| parse_hex(b))
        .flatten()
}

fn one_hex(b: &[u8]) -> Option<u8> {
    match b {
        [c @ b'0'..=b'7'] => Some(c - b'0'),
        _ => None,
    }
}

impl fmt::Display for Pci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}",
            self.domain, self.bus, self.device
        )?;
        match self.function {
            Some(n) => write!(f, ".{n}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_all_spellings_are_one_device() {
        let a = Pci::parse(b"0000:c5:00.0").unwrap();
        assert!(a.same_device(Pci::parse(b"PCI:0000:c5:00").unwrap()));
        assert!(a.same_device(Pci::parse(b"c5:00.1").unwrap()));
        assert!(!a.same_device(Pci::parse(b"0000:c6:00.0").unwrap()));
        assert_eq!(a.to_string(), "0000:c5:00.0");
        assert_eq!(Pci::parse(b"1-3"), None);
        assert_eq!(Pci::parse(b"c5:00.9"), None);
        assert_eq!(
            Pci::find("leg on 0000:03:00.0, idle"),
            Pci::parse(b"0000:03:00.0")
        );
    }
}
