//! The surroundings: network shares, disks, file systems, network cards.

use super::Row;
use super::sources::{BLOCK, CIFS, NETDEV as NETDEV_SRC, NFS};
use crate::triage::finding::Finding;
use crate::triage::pattern::Caps;

fn lost(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::ShareLost { recovered: false })
}

fn back(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::ShareLost { recovered: true })
}

fn disk(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::StorageLost {
        what: c.text("what"),
    })
}

fn net(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::NetworkLost)
}

/// SMB lines, after `CIFS: ` (with `VFS: `) or in the old spelling `CIFS VFS: `.
const SMB: &[Row] = &[
    Row {
        template: "VFS: {x}has not responded in {n} seconds. Reconnecting",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}sends on sock {s} stuck for {n} seconds",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}Error -{n} sending data on socket to server",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}Send error in {op} = -{n}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}cifs_mount failed w/return code = -{n}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}Error connecting to socket. Aborting operation",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}No writable handle",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}cifs_reconnect_tcon: reconnect timed out",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}Unexpected lookup error -{n}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}server overflowed SMB3 credits",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}BAD_NETWORK_NAME: {s}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "VFS: {x}sends failed",
        make: lost,
        source: CIFS,
    },
];

/// NFS lines, after `nfs: ` or `NFS: `.
const NFS_ROWS: &[Row] = &[
    Row {
        template: "server {s} not responding, still trying",
        make: lost,
        source: NFS,
    },
    Row {
        template: "server {s} not responding, timed out",
        make: lost,
        source: NFS,
    },
    Row {
        template: "server {s} OK",
        make: back,
        source: NFS,
    },
    Row {
        template: "state manager: {x} failed on NFSv4 server {s} with error {n}",
        make: lost,
        source: NFS,
    },
    Row {
        template: "nfs4_reclaim_open_state: {x}",
        make: lost,
        source: NFS,
    },
];

/// Disk lines of block drivers and file systems; the file system's own tag is `EXT4-fs`, `XFS`, `BTRFS`.
const DISK: &[Row] = &[
    Row {
        template: "Removing after probe failure status: {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "Device not ready; aborting {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "controller is down; will reset: {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "Disabling device after reset failure: {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "I/O {n} QID {q} timeout, {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "I/O {n} ({x}) QID {q} timeout, {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "I/O tag {n} ({x}) QID {q} timeout, {what}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "detected capacity change from {a} to 0",
        make: |_| {
            Some(Finding::StorageLost {
                what: "capacity fell to 0".to_owned(),
            })
        },
        source: BLOCK,
    },
    Row {
        template: "rejecting I/O to {what} device",
        make: disk,
        source: BLOCK,
    },
];

const BLK: &[Row] = &[
    Row {
        template: "I/O error, dev {what}, sector {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "critical medium error, dev {what}, sector {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "critical target error, dev {what}, sector {rest}",
        make: disk,
        source: BLOCK,
    },
];

const FILESYSTEM: &[Row] = &[
    Row {
        template: "error (device {what}): {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "({what}): Remounting filesystem read-only",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "({what}): metadata I/O error {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "({what}): log I/O error {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "({what}): Filesystem has been shut down {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "({what}): I/O Error Detected. Shutting down filesystem",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "error (device {what}) in {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "lost page write due to I/O error on {what}",
        make: disk,
        source: BLOCK,
    },
];

/// Network queue watchdog; matched after driver and interface.
pub const NETDEV: &[Row] = &[
    Row {
        template: "NETDEV WATCHDOG: {x}transmit queue {q} timed out{rest}",
        make: net,
        source: NETDEV_SRC,
    },
    Row {
        template: "Detected Hardware Unit Hang",
        make: net,
        source: NETDEV_SRC,
    },
    Row {
        template: "Detected Tx Unit Hang",
        make: net,
        source: NETDEV_SRC,
    },
];

/// Lines without a tag.
pub const UNTAGGED: &[Row] = &[
    Row {
        template: "CIFS VFS: {x}has not responded in {n} seconds",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "CIFS VFS: Server {x} has not responded in {n} seconds",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "CIFS VFS: {x}Send error in {op} = -{n}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "CIFS VFS: {x}Error -{n} sending data on socket to server",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "CIFS VFS: {x}cifs_mount failed w/return code = -{n}",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "CIFS VFS: {x}sends on sock {s} stuck for {n} seconds",
        make: lost,
        source: CIFS,
    },
    Row {
        template: "sd {addr}: {x}rejecting I/O to {what} device",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "sd {addr}: [{what}] {x}Result: hostbyte=DID_NO_CONNECT{rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "Buffer I/O error on dev {what}, {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "I/O error, dev {what}, sector {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "critical medium error, dev {what}, sector {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "EXT4-fs error (device {what}): {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "EXT4-fs error (device {what}) in {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "EXT4-fs ({what}): Remounting filesystem read-only",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "EXT4-fs warning (device {what}): {x}I/O error{rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "XFS ({what}): {x}I/O error {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "XFS ({what}): {x}Shutting down filesystem",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "XFS ({what}): Filesystem has been shut down {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "BTRFS error (device {what}): {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "BTRFS critical (device {what}): {rest}",
        make: disk,
        source: BLOCK,
    },
    Row {
        template: "NETDEV WATCHDOG: {x}transmit queue {q} timed out{rest}",
        make: net,
        source: NETDEV_SRC,
    },
];

/// The table for a driver tag.
#[must_use]
pub fn tagged(tag: &[u8]) -> &'static [Row] {
    match tag {
        b"CIFS" => SMB,
        b"nfs" | b"NFS" | b"nfs4" | b"lockd" | b"NFS4" => NFS_ROWS,
        b"EXT4-fs" | b"XFS" | b"BTRFS" | b"F2FS-fs" => FILESYSTEM,
        b"blk_update_request" | b"blk_print_req_error" | b"print_req_error" => BLK,
        _ => {
            if tag.starts_with(b"nvme")
                || tag.starts_with(b"sd")
                || tag.starts_with(b"ata")
                || tag.starts_with(b"mmc")
            {
                DISK
            } else {
                &[]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn shares_of_all_ages() {
        for line in [
            &br"VFS: \\192.0.2.12 has not responded in 180 seconds. Reconnecting..."[..],
            br"VFS: \\192.0.2.12 Error -104 sending data on socket to server",
            b"VFS: Send error in read = -11",
            b"VFS: cifs_mount failed w/return code = -115",
        ] {
            assert!(
                find(SMB, line).is_some(),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        assert!(
            find(
                UNTAGGED,
                b"CIFS VFS: Server nas has not responded in 120 seconds. Reconnecting..."
            )
            .is_some()
        );
        assert!(find(NFS_ROWS, b"server 192.0.2.10 not responding, still trying").is_some());
        assert!(
            find(
                tagged(b"blk_update_request"),
                b"I/O error, dev sda, sector 8 op 0x0"
            )
            .is_some()
        );
    }
}
