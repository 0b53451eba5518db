//! What the GPU's driver tells through files: utilisation, memory, clocks, power, throttling, DRAM traffic, queue
//! evictions, device core dumps. Every value that is not there is absent, never zero.

use std::path::PathBuf;

use super::telemetry::cell;
use crate::os::root::Root;

/// Telemetry columns of the first AMD GPU.
pub const GPU_COLUMNS: &[&str] = &[
    "gpu_busy_pct",
    "vram_used_bytes",
    "gtt_used_bytes",
    "sclk_mhz",
    "mclk_mhz",
    "fclk_mhz",
    "perf_level",
    "temp_c",
    "power_w",
    "gm_temp_gfx_c",
    "gm_gfx_activity_raw",
    "gm_dram_read_mb_s",
    "gm_dram_write_mb_s",
    "gm_socket_power_mw",
    "gm_gfxclk_mhz",
    "gm_throttle_prochot",
    "gm_throttle_spl",
    "gm_throttle_fppt",
    "gm_throttle_sppt",
    "gm_throttle_thm_core",
    "gm_throttle_thm_gfx",
    "gm_throttle_thm_soc",
    "kfd_evicted_ms",
    "kfd_vram_bytes",
    "kfd_sdma_us",
    "kfd_queues",
    "kfd_cu_occupancy",
];

/// One AMD GPU of the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// `card0`, …
    pub name: String,
    /// Its device folder.
    pub device: PathBuf,
    /// PCI address, e.g. `0000:c5:00.0`.
    pub pci: Option<String>,
}

/// The AMD GPUs, by `/sys/class/drm/card*/device/vendor`.
#[must_use]
pub fn cards(root: &Root) -> Vec<Card> {
    if !root.exists("/sys/class/drm") {
        return Vec::new();
    }
    root.list("/sys/class/drm")
        .into_iter()
        .filter(|n| {
            n.strip_prefix("card")
                .is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit()))
        })
        .filter_map(|name| {
            let device = PathBuf::from(format!("/sys/class/drm/{name}/device"));
            (root.text(device.join("vendor"))?.trim() == "0x1002").then(|| {
                let pci = root.text(device.join("uevent")).and_then(|t| {
                    t.lines()
                        .find_map(|l| l.strip_prefix("PCI_SLOT_NAME=").map(str::to_owned))
                });
                Card { name, device, pci }
            })
        })
        .collect()
}

/// Reads the telemetry of one GPU.
#[derive(Debug)]
pub struct GpuReader {
    card: Option<Card>,
    others: Vec<Card>,
    hwmon: Option<PathBuf>,
}

/// One row's GPU part.
#[derive(Debug)]
pub struct GpuSample {
    /// Highest busy percentage over all GPUs.
    pub busy_pct: Option<f64>,
    /// Cells in the order of [`GPU_COLUMNS`].
    pub cells: Vec<String>,
}

impl GpuReader {
    /// Finds the board's GPUs.
    #[must_use]
    pub fn find(root: &Root) -> Self {
        let mut all = cards(root).into_iter();
        let card = all.next();
        let hwmon = card.as_ref().and_then(|c| {
            let base = c.device.join("hwmon");
            root.list(&base).first().map(|h| base.join(h))
        });
        GpuReader {
            card,
            others: all.collect(),
            hwmon,
        }
    }

    /// No AMD GPU here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.card.is_none()
    }

    /// One sample; `None` without a GPU. `own` are the attempt's processes.
    #[must_use]
    pub fn sample(&mut self, root: &Root, own: &[i32]) -> Option<GpuSample> {
        let c = self.card.as_ref()?;
        let d = &c.device;
        let busy = |c: &Card| root.int(c.device.join("gpu_busy_percent"));
        let mine = busy(c);
        #[allow(clippy::cast_precision_loss)]
        let busy_pct = self
            .others
            .iter()
            .filter_map(busy)
            .chain(mine)
            .max()
            .map(|v| v as f64);
        let clock = |f: &str| root.text(d.join(f)).and_then(|t| current_clock(&t));
        let hw = |f: &str, scale: f64| -> Option<f64> {
            #[allow(clippy::cast_precision_loss)]
            Some(root.int(self.hwmon.as_ref()?.join(f))? as f64 / scale)
        };
        let gm = root
            .read(d.join("gpu_metrics"), 4096)
            .and_then(|b| GpuMetrics::parse(&b));
        let mut cells = vec![
            cell(mine),
            cell(root.int(d.join("mem_info_vram_used"))),
            cell(root.int(d.join("mem_info_gtt_used"))),
            cell(clock("pp_dpm_sclk")),
            cell(clock("pp_dpm_mclk")),
            cell(clock("pp_dpm_fclk")),
            cell(
                root.text(d.join("power_dpm_force_performance_level"))
                    .map(|t| t.replace(',', " ")),
            ),
            cell(hw("temp1_input", 1000.0)),
            cell(hw("power1_average", 1e6).or_else(|| hw("power1_input", 1e6))),
        ];
        let g = gm.as_ref();
        cells.extend([
            cell(g.and_then(|g| g.temp_gfx_c)),
            cell(g.and_then(|g| g.gfx_activity)),
            cell(g.and_then(|g| g.dram_read_mb_s)),
            cell(g.and_then(|g| g.dram_write_mb_s)),
            cell(g.and_then(|g| g.socket_power_mw)),
            cell(g.and_then(|g| g.gfxclk_mhz)),
        ]);
        for i in 0..7 {
            cells.push(cell(g.and_then(|g| g.throttle[i])));
        }
        let kfd = Kfd::read(root, own);
        cells.extend([
            cell(kfd.evicted_ms),
            cell(kfd.vram_bytes),
            cell(kfd.sdma_us),
            cell(kfd.queues),
            cell(kfd.cu_occupancy),
        ]);
        Some(GpuSample { busy_pct, cells })
    }
}

/// The clock marked `*` in a `pp_dpm_*` table, MHz.
#[must_use]
pub fn current_clock(table: &str) -> Option<u64> {
    let line = table.lines().find(|l| l.trim_end().ends_with('*'))?;
    let value = line.split(':').nth(1)?.trim();
    let end = value.find(|c: char| !c.is_ascii_digit())?;
    value.get(..end)?.parse().ok()
}

/// What the compute driver tells of processes under `/sys/class/kfd/kfd/proc/PID/`, summed over GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Kfd {
    /// Milliseconds for which queues of any process were evicted (`stats_GPU/evicted_ms`): a neighbour's eviction stops
    /// ours, too.
    evicted_ms: Option<u64>,
    /// Device memory of the attempt's processes (`vram_GPU`).
    vram_bytes: Option<u64>,
    /// Time of their copies on the copy engines, µs (`sdma_GPU`).
    sdma_us: Option<u64>,
    /// Their queues (`queues/N`).
    queues: Option<u64>,
    /// Compute units with waves of theirs (`stats_GPU/cu_occupancy`).
    cu_occupancy: Option<u64>,
}

impl Kfd {
    fn read(root: &Root, own: &[i32]) -> Kfd {
        let mut k = Kfd::default();
        let proc = PathBuf::from("/sys/class/kfd/kfd/proc");
        if !root.exists(&proc) {
            return k;
        }
        let int = |p: PathBuf| root.int(p).and_then(|v| u64::try_from(v).ok());
        let add = |sum: &mut Option<u64>, v: Option<u64>| {
            if let Some(v) = v {
                *sum = Some(sum.unwrap_or(0).saturating_add(v));
            }
        };
        for pid in root.list(&proc) {
            let base = proc.join(&pid);
            // A fake board cannot know our pids: there every process is the attempt's.
            let ours = root.is_fake() || pid.parse().is_ok_and(|p: i32| own.contains(&p));
            for name in root.list(&base) {
                let at = base.join(&name);
                if name.starts_with("stats_") {
                    add(&mut k.evicted_ms, int(at.join("evicted_ms")));
                    if ours {
                        add(&mut k.cu_occupancy, int(at.join("cu_occupancy")));
                    }
                } else if ours && name.starts_with("vram_") {
                    add(&mut k.vram_bytes, int(at));
                } else if ours && name.starts_with("sdma_") {
                    add(&mut k.sdma_us, int(at));
                } else if ours && name == "queues" {
                    let n = root.list(&at).len();
                    add(&mut k.queues, u64::try_from(n).ok());
                }
            }
        }
        k
    }
}

/// The part of `gpu_metrics` v3.0 (APUs; kernel `struct gpu_metrics_v3_0`) that legs need. A field whose bits are
/// all set was not filled by the firmware and is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuMetrics {
    /// GPU temperature, °C.
    pub temp_gfx_c: Option<f64>,
    /// GPU activity as the firmware gives it: the header says percent, SMU 14 fills hundredths of one.
    pub gfx_activity: Option<u16>,
    /// DRAM reads, MB/s.
    pub dram_read_mb_s: Option<u16>,
    /// DRAM writes, MB/s.
    pub dram_write_mb_s: Option<u16>,
    /// Socket power, mW.
    pub socket_power_mw: Option<u32>,
    /// Average GPU clock, MHz.
    pub gfxclk_mhz: Option<u16>,
    /// Throttle residencies: prochot, spl, fppt, sppt, thm_core, thm_gfx, thm_soc.
    pub throttle: [Option<u32>; 7],
}

impl GpuMetrics {
    /// Parses the binary file; `None` for another version.
    #[must_use]
    pub fn parse(b: &[u8]) -> Option<Self> {
        let size = usize::from(u16::from_le_bytes(b.get(..2)?.try_into().ok()?));
        // The first kernels with v3.0 had a shorter struct (256 bytes) with other offsets.
        if b.get(2..4)? != [3, 0] || size < 264 || b.len() < size {
            return None;
        }
        let u16_at = |at: usize| {
            let v = u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?);
            (v != u16::MAX).then_some(v)
        };
        let u32_at = |at: usize| {
            let v = u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?);
            (v != u32::MAX).then_some(v)
        };
        // Offsets of the C struct with natural alignment; the counter at 104 is 8-aligned.
        Some(GpuMetrics {
            temp_gfx_c: u16_at(4).map(|v| f64::from(v) / 100.0),
            gfx_activity: u16_at(42),
            dram_read_mb_s: u16_at(94),
            dram_write_mb_s: u16_at(96),
            socket_power_mw: u32_at(112),
            gfxclk_mhz: u16_at(174),
            throttle: std::array::from_fn(|i| u32_at(228 + 4 * i)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kfd_tells_of_own_processes_and_of_everybodys_evictions() {
        let d = tempfile::tempdir().unwrap();
        let put = |p: &str, t: &str| {
            let p = d.path().join("sys/class/kfd/kfd/proc").join(p);
            std::fs::create_dir_all(p.parent().unwrap()).unwrap();
            std::fs::write(p, t).unwrap();
        };
        assert_eq!(Kfd::read(&Root::new(Some(d.path())), &[]), Kfd::default());
        put("4711/vram_51584", "1073741824\n");
        put("4711/sdma_51584", "250\n");
        put("4711/stats_51584/evicted_ms", "12\n");
        put("4711/stats_51584/cu_occupancy", "40\n");
        put("4711/queues/0/gpuid", "51584\n");
        put("4711/queues/1/gpuid", "51584\n");
        put("99/stats_51584/evicted_ms", "8\n");
        put("99/stats_51584/cu_occupancy", "0\n");
        let k = Kfd::read(&Root::new(Some(d.path())), &[]);
        assert_eq!(
            k,
            Kfd {
                evicted_ms: Some(20),
                vram_bytes: Some(1 << 30),
                sdma_us: Some(250),
                queues: Some(2),
                cu_occupancy: Some(40),
            }
        );
    }

    #[test]
    fn the_starred_clock_is_the_current_one() {
        assert_eq!(
            current_clock("0: 600Mhz\n1: 1100Mhz *\n2: 2900Mhz\n"),
            Some(1100)
        );
        assert_eq!(current_clock("0: 600Mhz\n"), None);
        assert_eq!(current_clock(""), None);
    }

    #[test]
    fn gpu_metrics_v3_fields_lie_where_the_kernels_struct_has_them() {
        // struct gpu_metrics_v3_0 of include/kgd_pp_interface.h is 264 bytes long with natural alignment.
        let mut b = vec![0xffu8; 264];
        b[..4].copy_from_slice(&[8, 1, 3, 0]);
        b[4..6].copy_from_slice(&6512u16.to_le_bytes());
        b[94..96].copy_from_slice(&51_000u16.to_le_bytes());
        b[112..116].copy_from_slice(&55_250u32.to_le_bytes());
        b[228..232].copy_from_slice(&7u32.to_le_bytes());
        b[252..256].copy_from_slice(&9u32.to_le_bytes());
        let m = GpuMetrics::parse(&b).unwrap();
        assert_eq!(m.temp_gfx_c, Some(65.12));
        assert_eq!(m.dram_read_mb_s, Some(51_000));
        assert_eq!(m.dram_write_mb_s, None, "not filled is absent, not zero");
        assert_eq!(m.socket_power_mw, Some(55_250));
        assert_eq!(
            (m.throttle[0], m.throttle[6], m.throttle[1]),
            (Some(7), Some(9), None)
        );
        b[2] = 2;
        assert_eq!(GpuMetrics::parse(&b), None);
        assert_eq!(GpuMetrics::parse(&b[..100]), None);
        assert_eq!(GpuMetrics::parse(&[]), None);
    }
}
