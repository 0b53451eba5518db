//! The surroundings: network shares, disks, file systems, network cards.

use super::sources::{BLOCK, CIFS, NETDEV as NETDEV_SRC, NFS};
use super::{Row, row};
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
    row(
        "VFS: {x}has not responded in {n} seconds. Reconnecting",
        lost,
        CIFS,
    ),
    row(
        "VFS: {x}sends on sock {s} stuck for {n} seconds",
        lost,
        CIFS,
    ),
    row(
        "VFS: {x}Error -{n} sending data on socket to server",
        lost,
        CIFS,
    ),
    row("VFS: {x}Send error in {op} = -{n}", lost, CIFS),
    row("VFS: {x}cifs_mount failed w/return code = -{n}", lost, CIFS),
    row(
        "VFS: {x}Error connecting to socket. Aborting operation",
        lost,
        CIFS,
    ),
    row("VFS: {x}No writable handle", lost, CIFS),
    row(
        "VFS: {x}cifs_reconnect_tcon: reconnect timed out",
        lost,
        CIFS,
    ),
    row("VFS: {x}Unexpected lookup error -{n}", lost, CIFS),
    row("VFS: {x}server overflowed SMB3 credits", lost, CIFS),
    row("VFS: {x}BAD_NETWORK_NAME: {s}", lost, CIFS),
    row("VFS: {x}sends failed", lost, CIFS),
];

/// NFS lines, after `nfs: ` or `NFS: `.
const NFS_ROWS: &[Row] = &[
    row("server {s} not responding, still trying", lost, NFS),
    row("server {s} not responding, timed out", lost, NFS),
    row("server {s} OK", back, NFS),
    row(
        "state manager: {x} failed on NFSv4 server {s} with error {n}",
        lost,
        NFS,
    ),
    row("nfs4_reclaim_open_state: {x}", lost, NFS),
];

/// Disk lines of block drivers and file systems; the file system's own tag is `EXT4-fs`, `XFS`, `BTRFS`.
const DISK: &[Row] = &[
    row("Removing after probe failure status: {what}", disk, BLOCK),
    row("Device not ready; aborting {what}", disk, BLOCK),
    row("controller is down; will reset: {what}", disk, BLOCK),
    row("Disabling device after reset failure: {what}", disk, BLOCK),
    row("I/O {n} QID {q} timeout, {what}", disk, BLOCK),
    row("I/O {n} ({x}) QID {q} timeout, {what}", disk, BLOCK),
    row("I/O tag {n} ({x}) QID {q} timeout, {what}", disk, BLOCK),
    row(
        "detected capacity change from {a} to 0",
        |_| {
            Some(Finding::StorageLost {
                what: "capacity fell to 0".to_owned(),
            })
        },
        BLOCK,
    ),
    row("rejecting I/O to {what} device", disk, BLOCK),
];

const BLK: &[Row] = &[
    row("I/O error, dev {what}, sector {rest}", disk, BLOCK),
    row(
        "critical medium error, dev {what}, sector {rest}",
        disk,
        BLOCK,
    ),
    row(
        "critical target error, dev {what}, sector {rest}",
        disk,
        BLOCK,
    ),
];

const FILESYSTEM: &[Row] = &[
    row("error (device {what}): {rest}", disk, BLOCK),
    row("({what}): Remounting filesystem read-only", disk, BLOCK),
    row("({what}): metadata I/O error {rest}", disk, BLOCK),
    row("({what}): log I/O error {rest}", disk, BLOCK),
    row(
        "({what}): Filesystem has been shut down {rest}",
        disk,
        BLOCK,
    ),
    row(
        "({what}): I/O Error Detected. Shutting down filesystem",
        disk,
        BLOCK,
    ),
    row("error (device {what}) in {rest}", disk, BLOCK),
    row("lost page write due to I/O error on {what}", disk, BLOCK),
];

/// Network queue watchdog; matched after driver and interface.
pub const NETDEV: &[Row] = &[
    row(
        "NETDEV WATCHDOG: {x}transmit queue {q} timed out{rest}",
        net,
        NETDEV_SRC,
    ),
    row("Detected Hardware Unit Hang", net, NETDEV_SRC),
    row("Detected Tx Unit Hang", net, NETDEV_SRC),
];

/// Lines without a tag.
pub const UNTAGGED: &[Row] = &[
    row("CIFS VFS: {x}has not responded in {n} seconds", lost, CIFS),
    row(
        "CIFS VFS: Server {x} has not responded in {n} seconds",
        lost,
        CIFS,
    ),
    row("CIFS VFS: {x}Send error in {op} = -{n}", lost, CIFS),
    row(
        "CIFS VFS: {x}Error -{n} sending data on socket to server",
        lost,
        CIFS,
    ),
    row(
        "CIFS VFS: {x}cifs_mount failed w/return code = -{n}",
        lost,
        CIFS,
    ),
    row(
        "CIFS VFS: {x}sends on sock {s} stuck for {n} seconds",
        lost,
        CIFS,
    ),
    row("sd {addr}: {x}rejecting I/O to {what} device", disk, BLOCK),
    row(
        "sd {addr}: [{what}] {x}Result: hostbyte=DID_NO_CONNECT{rest}",
        disk,
        BLOCK,
    ),
    row("Buffer I/O error on dev {what}, {rest}", disk, BLOCK),
    row("I/O error, dev {what}, sector {rest}", disk, BLOCK),
    row(
        "critical medium error, dev {what}, sector {rest}",
        disk,
        BLOCK,
    ),
    row("EXT4-fs error (device {what}): {rest}", disk, BLOCK),
    row("EXT4-fs error (device {what}) in {rest}", disk, BLOCK),
    row(
        "EXT4-fs ({what}): Remounting filesystem read-only",
        disk,
        BLOCK,
    ),
    row(
        "EXT4-fs warning (device {what}): {x}I/O error{rest}",
        disk,
        BLOCK,
    ),
    row("XFS ({what}): {x}I/O error {rest}", disk, BLOCK),
    row("XFS ({what}): {x}Shutting down filesystem", disk, BLOCK),
    row(
        "XFS ({what}): Filesystem has been shut down {rest}",
        disk,
        BLOCK,
    ),
    row("BTRFS error (device {what}): {rest}", disk, BLOCK),
    row("BTRFS critical (device {what}): {rest}", disk, BLOCK),
    row(
        "NETDEV WATCHDOG: {x}transmit queue {q} timed out{rest}",
        net,
        NETDEV_SRC,
    ),
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
