//! Where the rows of the tables come from.

/// Fault numbers, SQ interrupt types and access flags: the KFD interrupt handlers.
pub const KFD_INT: &str =
    "linux drivers/gpu/drm/amd/amdkfd/kfd_int_process_v11.c https://github.com/torvalds/linux";
/// Page-fault printout of the graphics memory controller.
pub const GMC: &str =
    "linux drivers/gpu/drm/amd/amdgpu/gmc_v11_0.c, gfxhub_v3_0.c https://github.com/torvalds/linux";
/// Reset sources.
pub const RESET: &str = "linux drivers/gpu/drm/amd/amdgpu/amdgpu_reset.h, amdgpu_device.c https://github.com/torvalds/linux";
/// MES messages.
pub const MES: &str = "linux drivers/gpu/drm/amd/amdgpu/mes_v11_0.c, mes_v12_0.c, amdkfd/kfd_device_queue_manager.c https://github.com/torvalds/linux";
/// Job timeouts of kernel-managed rings.
pub const JOB: &str =
    "linux drivers/gpu/drm/amd/amdgpu/amdgpu_job.c https://github.com/torvalds/linux";
/// Power-management firmware mailbox.
pub const SMU: &str =
    "linux drivers/gpu/drm/amd/pm/swsmu/smu_cmn.c https://github.com/torvalds/linux";
/// PSP firmware loading.
pub const PSP: &str =
    "linux drivers/gpu/drm/amd/amdgpu/amdgpu_psp.c https://github.com/torvalds/linux";
/// RAS and ACA.
pub const RAS: &str =
    "linux drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c, amdgpu_aca.c https://github.com/torvalds/linux";
/// Thermal interrupts.
pub const CTF: &str =
    "linux drivers/gpu/drm/amd/pm/swsmu/smu11/smu_v11_0.c https://github.com/torvalds/linux";
/// The VGPR-count and save-area defect of gfx1151.
pub const GFX1151_CWSR: &str =
    "https://github.com/ROCm/TheRock/issues/2991 https://github.com/ROCm/rocm-systems/pull/2200";
/// The broken MES firmware 0x83 of gfx1151.
pub const GFX1151_MES83: &str = "https://github.com/ROCm/legacy-rocm-build/issues/5724 https://github.com/ROCm/legacy-rocm-build/issues/5991";
/// Versions that AMD supports on gfx1151.
pub const GFX1151_TABLE: &str =
    "https://rocm.docs.amd.com/en/latest/how-to/system-optimization/strixhalo.html";
/// MES evict and restore on gfx1103, a known issue.
pub const GFX1103_MES: &str = "https://github.com/ROCm/legacy-rocm-build/issues/6018";
/// KFD's resident memory budget.
pub const SVM: &str = "linux drivers/gpu/drm/amd/amdkfd/kfd_svm.c; https://github.com/ROCm/legacy-rocm-build/issues/6582";
/// ROCr's messages about faults and exceptions.
pub const ROCR: &str = "https://github.com/ROCm/rocm-systems projects/rocr-runtime runtime/hsa-runtime/core/runtime/runtime.cpp";
/// HSA status codes.
pub const HSA: &str = "https://github.com/ROCm/rocm-systems projects/rocr-runtime runtime/hsa-runtime/inc/hsa.h, hsa_ext_amd.h";
/// HIP error names.
pub const HIP: &str = "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/error_codes.html";
/// CUDA error names.
pub const CUDA: &str = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html";
/// Xid numbers.
pub const XID: &str = "https://docs.nvidia.com/deploy/xid-errors/index.html";
/// OOM killer.
pub const OOM: &str = "linux mm/oom_kill.c https://github.com/torvalds/linux";
/// systemd-oomd.
pub const OOMD: &str =
    "https://www.freedesktop.org/software/systemd/man/latest/systemd-oomd.service.html";
/// CPU traps and segfault lines.
pub const TRAPS: &str =
    "linux arch/x86/kernel/traps.c, arch/x86/mm/fault.c https://github.com/torvalds/linux";
/// Machine checks.
pub const MCE: &str = "linux arch/x86/kernel/cpu/mce/core.c, drivers/edac/mce_amd.c https://github.com/torvalds/linux";
/// Reset reasons of AMD CPUs.
pub const RESET_REASON: &str = "linux arch/x86/kernel/cpu/amd.c (previous system reset reason) https://github.com/torvalds/linux";
/// PCI Express advanced error reporting.
pub const AER: &str = "linux drivers/pci/pcie/aer.c; Documentation/PCI/pcieaer-howto.rst https://github.com/torvalds/linux";
/// AMD IOMMU.
pub const IOMMU: &str =
    "linux drivers/iommu/amd/iommu.c, drivers/iommu/intel/dmar.c https://github.com/torvalds/linux";
/// SMB client.
pub const CIFS: &str =
    "linux fs/smb/client/connect.c, transport.c https://github.com/torvalds/linux";
/// NFS client.
pub const NFS: &str = "linux net/sunrpc/clnt.c https://github.com/torvalds/linux";
/// Block layer, NVMe and file systems.
pub const BLOCK: &str =
    "linux drivers/nvme/host, block/blk-core.c, fs https://github.com/torvalds/linux";
/// Network queue watchdog.
pub const NETDEV: &str = "linux net/sched/sch_generic.c https://github.com/torvalds/linux";
/// Hung tasks, lockups and oopses.
pub const HUNG: &str =
    "linux kernel/hung_task.c, kernel/watchdog.c, kernel/panic.c https://github.com/torvalds/linux";
/// glibc's heap checks and abort.
pub const GLIBC: &str = "glibc malloc/malloc.c https://sourceware.org/glibc/";
/// ggml's messages.
pub const GGML: &str =
    "https://github.com/ggml-org/llama.cpp ggml/src/ggml.c, ggml-cuda/ggml-cuda.cu";
/// PyTorch's messages.
pub const TORCH: &str =
    "https://github.com/pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp, c10/hip";
/// RADV's messages.
pub const RADV: &str =
    "https://gitlab.freedesktop.org/mesa/mesa src/amd/vulkan/winsys/amdgpu/radv_amdgpu_bo.c";
/// The engine's own messages.
pub const ENGINE: &str = "legwork engine: engine-fatal lines and op refusals (harness/README.md)";
/// How shells report a dead child.
pub const SHELL: &str = "bash and POSIX sh: job status messages";
/// errno texts.
pub const ERRNO: &str = "glibc strerror(3)";
/// Sections of the fault rules in this folder.
pub const RULES: &str = "fault rules (harness/src/triage/RULES.md)";
