use super::*;
use crate::cpu::Pool;
use crate::ops::{FusedArgs, FusedNormRope, RopeStyle, RopeTable};
use crate::tensor::{DType, HostDomain, Tensor};

fn ok(_: &mut Ctx<'_>, _: FusedArgs<'_>) -> Result<(), OpError> {
    Ok(())
}

/// Small but complete arguments; providers in these tests do not look at them.
struct Owned {
    f: Tensor,
    i: Tensor,
    cache: Tensor,
    table: RopeTable,
}

impl Owned {
    fn new() -> Self {
        let zeros = |dtype, n| Tensor::zeros(&HostDomain, dtype, n).unwrap();
        Owned {
            f: zeros(DType::F32, 8),
            i: zeros(DType::I32, 1),
            cache: zeros(DType::F32, 8),
            table: RopeTable {
                dim: 2,
                freq: vec![1.0],
            },
        }
    }
    fn args(&mut self) -> FusedArgs<'_> {
        FusedArgs {
            q: None,
            q_weight: None,
            q_lora: 0,
            kv: self.f.at(0),
            kv_weight: self.f.at(0),
            cache: self.cache.at_mut(0),
            slots: self.i.at(0),
            pos: self.i.at(0),
            rows: 1,
            lora: 2,
            table: &self.table,
            style: RopeStyle::Interleaved,
            eps: 1e-5,
        }
    }
}

fn registry(fused: bool, tier: TierChoice) -> Registry {
    let mut r = Registry::empty(
        Knobs {
            fused_norm_rope: fused,
            ..Knobs::default()
        },
        tier,
    );
    r.add(DeviceKind::Cpu, Provider::<FusedNormRope>::reference(ok));
    r
}

const ROCM: DeviceKind = DeviceKind::Rocm;
const NOT_HOST: &str = "PageableMemoryAccess=0, allocator hipMalloc";

fn opened(mut r: Registry, host_addressable: bool) -> Registry {
    r.set_memory(
        ROCM,
        MemoryFacts {
            host_addressable,
            reason: NOT_HOST.to_owned(),
        },
    );
    r
}

fn causes(r: &Registry) -> Vec<Cause> {
    let mut owned = Owned::new();
    r.select::<FusedNormRope>(ROCM, &owned.args())
        .unwrap_err()
        .causes
}

#[test]
fn a_refusal_lists_exactly_the_causes_that_hold() {
    let not_eligible = || Cause::ReferenceNotEligible {
        why: NOT_HOST.to_owned(),
    };
    let off = || Cause::SwitchedOff {
        knob: "VT_MLA_FUSED_NORM_ROPE=0",
    };
    // not registered, reference not eligible
    assert_eq!(
        causes(&opened(registry(true, TierChoice::Auto), false)),
        [Cause::NotRegistered, not_eligible()]
    );
    // the same, and switched off
    assert_eq!(
        causes(&opened(registry(false, TierChoice::Auto), false)),
        [off(), Cause::NotRegistered, not_eligible()]
    );
    // switched off alone: native is registered
    let mut r = opened(registry(false, TierChoice::Auto), false);
    r.add(ROCM, Provider::<FusedNormRope>::native("vt-native", ok));
    assert_eq!(causes(&r), [off()]);
    // the shape, with the reference tier out of reach
    let mut r = opened(registry(true, TierChoice::Auto), false);
    r.add(
        ROCM,
        Provider::<FusedNormRope>::native("vt-native", ok)
            .supporting(|a| Err(format!("lora {}", a.lora))),
    );
    assert_eq!(
        causes(&r),
        [
            Cause::Shape {
                provider: "vt-native",
                why: "lora 2".to_owned()
            },
            not_eligible()
        ]
    );
}

#[test]
fn a_refusal_names_op_device_and_how_to_check() {
    let r = opened(registry(true, TierChoice::Auto), false);
    let mut owned = Owned::new();
    let text = r
        .select::<FusedNormRope>(ROCM, &owned.args())
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "vt: no kernel for op FusedNormRope (id 30) on device rocm (type 5), causes: [1] not registered natively \
         (VT_OP_PROVIDER_STATS=1 lists what is) [2] reference tier not eligible: device memory is not host-addressable \
         (PageableMemoryAccess=0, allocator hipMalloc)"
    );
}

#[test]
fn registered_available_and_enabled_are_three_questions() {
    let op = OpId::FusedNormRope;
    let r = opened(registry(false, TierChoice::Auto), true);
    assert!(!r.registered(op, ROCM));
    assert!(r.available(op, ROCM));
    assert!(!r.enabled(op));
    assert!(r.enabled(OpId::RmsNorm));
    assert!(!opened(registry(true, TierChoice::Auto), false).available(op, ROCM));
}

#[test]
fn the_reference_tier_is_counted_and_traced_once() {
    use std::sync::{Arc, Mutex};
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut r = opened(registry(true, TierChoice::Auto), true);
    let sink = Arc::clone(&seen);
    r.observe(move |s| sink.lock().unwrap().push(s.to_string()));
    let pool = Pool::new(1);
    let mut ctx = Ctx {
        pool: &pool,
        device: None,
    };
    let mut owned = Owned::new();
    for _ in 0..3 {
        r.run::<FusedNormRope>(&mut ctx, ROCM, owned.args())
            .unwrap();
    }
    assert_eq!(r.reference_hits(), 3);
    assert_eq!(
        *seen.lock().unwrap(),
        ["[vt op-provider] op=30 device=5 selected=reference-tier priority=0 registered=0"]
    );
}

#[test]
fn tiers_can_be_excluded() {
    let mut native = registry(true, TierChoice::ReferenceOnly);
    native.add(
        DeviceKind::Cpu,
        Provider::<FusedNormRope>::native("vt-native", ok),
    );
    let mut owned = Owned::new();
    assert_eq!(
        native
            .select::<FusedNormRope>(DeviceKind::Cpu, &owned.args())
            .unwrap()
            .tier,
        Tier::Reference
    );
    let only = registry(true, TierChoice::NativeOnly);
    let refusal = only
        .select::<FusedNormRope>(DeviceKind::Cpu, &owned.args())
        .unwrap_err();
    assert_eq!(
        refusal.causes,
        [
            Cause::NotRegistered,
            Cause::TierExcluded {
                tier: Tier::Reference
            }
        ]
    );
}

#[test]
fn native_providers_are_asked_by_priority() {
    let mut r = registry(true, TierChoice::Auto);
    r.add(
        DeviceKind::Cpu,
        Provider::<FusedNormRope>::native("plain", ok),
    );
    r.add(
        DeviceKind::Cpu,
        Provider::<FusedNormRope>::native("wide", ok).priority(5),
    );
    let mut owned = Owned::new();
    assert_eq!(
        r.select::<FusedNormRope>(DeviceKind::Cpu, &owned.args())
            .unwrap()
            .name,
        "wide"
    );
}
