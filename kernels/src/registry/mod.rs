//! Which implementation serves an operation on a device, and why.
//!
//! [`Registry::select`] is the only way to a provider. Three questions stay apart: *registered* (a native implementation
//! exists), *available* (a native one, or the reference tier where the device's memory allows it) and *enabled* (no knob
//! switched the operation off). A refusal lists every cause that holds.

mod refusal;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use refusal::{Cause, Refusal};

use crate::device::{DeviceKind, MemoryFacts};
use crate::knobs::Knobs;
use crate::ops::{Ctx, Op, OpError, OpId};

/// Native code of a device, or the portable code that defines the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Written for the device.
    Native,
    /// Portable CPU code.
    Reference,
}

/// Which tiers may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// Native first, then the reference tier.
    #[default]
    Auto,
    /// Native or nothing.
    NativeOnly,
    /// The reference tier or nothing.
    ReferenceOnly,
}

/// Says whether a provider can take these arguments, or in words why not.
pub type SupportsFn<O> = for<'r, 'a> fn(&'r <O as Op>::Args<'a>) -> Result<(), String>;
/// Runs a provider.
pub type RunFn<O> = for<'r, 'c, 'a> fn(&'r mut Ctx<'c>, <O as Op>::Args<'a>) -> Result<(), OpError>;

/// One implementation of an operation.
pub struct Provider<O: Op> {
    /// Name printed in `selected=…`.
    pub name: &'static str,
    /// Its tier.
    pub tier: Tier,
    /// Higher is asked first.
    pub priority: i32,
    /// Whether it can take the arguments.
    pub supports: SupportsFn<O>,
    /// Runs it.
    pub run: RunFn<O>,
}

impl<O: Op> Clone for Provider<O> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<O: Op> Copy for Provider<O> {}

impl<O: Op> Provider<O> {
    /// A native provider that takes all arguments.
    pub fn native(name: &'static str, run: RunFn<O>) -> Self {
        Provider {
            name,
            tier: Tier::Native,
            priority: 0,
            supports: |_| Ok(()),
            run,
        }
    }

    /// A reference provider.
    pub fn reference(run: RunFn<O>) -> Self {
        Provider {
            name: "reference-tier",
            tier: Tier::Reference,
            priority: 0,
            supports: |_| Ok(()),
            run,
        }
    }

    /// The same provider, asked about its arguments first.
    #[must_use]
    pub fn supporting(mut self, supports: SupportsFn<O>) -> Self {
        self.supports = supports;
        self
    }

    /// The same provider with another priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

impl<O: Op> fmt::Debug for Provider<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({:?}, priority {})",
            self.name, self.tier, self.priority
        )
    }
}

/// What was selected, for the trace line and the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The operation.
    pub op: OpId,
    /// The device.
    pub device: DeviceKind,
    /// The provider's name.
    pub name: &'static str,
    /// Its tier.
    pub tier: Tier,
    /// Its priority.
    pub priority: i32,
    /// Whether a native implementation is registered.
    pub registered: bool,
}

impl fmt::Display for Selected {
    /// The line that users parse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[vt op-provider] op={} device={} selected={} priority={} registered={}",
            self.op.number(),
            self.device.id(),
            self.name,
            self.priority,
            u8::from(self.registered)
        )
    }
}

type Observer = Box<dyn Fn(&Selected) + Send + Sync>;

/// The table of providers, and the counters of their use.
pub struct Registry {
    // `Vec<Provider<O>>` behind `Any`, by operation and device; typed again in `slot`
    slots: Vec<Option<Box<dyn Any + Send + Sync>>>,
    natives: Vec<usize>,
    memory: [MemoryFacts; DeviceKind::ALL.len()],
    knobs: Knobs,
    tier: TierChoice,
    observer: Option<Observer>,
    traced: Vec<AtomicBool>,
    reference_hits: AtomicU64,
    timed: AtomicBool,
    /// By operation, nanoseconds.
    spent: Vec<AtomicU64>,
}

fn slot_index(op: OpId, device: DeviceKind) -> usize {
    op.index() * DeviceKind::ALL.len() + device.index()
}

impl Registry {
    /// A registry without providers. Devices other than the CPU are taken as not host-addressable until told otherwise.
    #[must_use]
    pub fn empty(knobs: Knobs, tier: TierChoice) -> Self {
        let n = OpId::ALL.len() * DeviceKind::ALL.len();
        let unknown = || MemoryFacts {
            host_addressable: false,
            reason: "the device was not opened".to_owned(),
        };
        Registry {
            slots: (0..n).map(|_| None).collect(),
            natives: vec![0; n],
            memory: [MemoryFacts::host(), unknown(), unknown(), unknown()],
            knobs,
            tier,
            observer: None,
            traced: (0..n).map(|_| AtomicBool::new(false)).collect(),
            reference_hits: AtomicU64::new(0),
            timed: AtomicBool::new(false),
            spent: OpId::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The registry of this build: the reference tier and the CPU's native code. Device drivers add theirs.
    #[must_use]
    pub fn new(knobs: Knobs, tier: TierChoice) -> Self {
        let mut registry = Registry::empty(knobs, tier);
        crate::reference::register(&mut registry);
        crate::cpu::register(&mut registry);
        registry
    }

    /// Adds a provider. Reference providers are added for [`DeviceKind::Cpu`] and serve every eligible device.
    pub fn add<O: Op>(&mut self, device: DeviceKind, provider: Provider<O>) {
        let i = slot_index(O::ID, device);
        if provider.tier == Tier::Native {
            self.natives[i] += 1;
        }
        let slot = self.slots[i].get_or_insert_with(|| Box::new(Vec::<Provider<O>>::new()));
        // An `OpId` names one type, so the cast only fails where two types share an id; they then cannot be told apart.
        if let Some(list) = slot.downcast_mut::<Vec<Provider<O>>>() {
            list.push(provider);
            list.sort_by_key(|p| std::cmp::Reverse(p.priority));
        }
    }

    /// Tells what is known of a device's memory.
    pub fn set_memory(&mut self, device: DeviceKind, facts: MemoryFacts) {
        self.memory[device.index()] = facts;
    }

    /// Called once per operation and device, at its first selection.
    pub fn observe(&mut self, observer: impl Fn(&Selected) + Send + Sync + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// The knobs in force.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Whether a native implementation exists.
    #[must_use]
    pub fn registered(&self, op: OpId, device: DeviceKind) -> bool {
        self.natives[slot_index(op, device)] > 0
    }

    /// Whether the reference tier may serve the device, or why not.
    ///
    /// # Errors
    /// The reason, in words that a user can check.
    pub fn reference_eligible(&self, device: DeviceKind) -> Result<(), String> {
        let facts = &self.memory[device.index()];
        if facts.host_addressable {
            Ok(())
        } else {
            Err(facts.reason.clone())
        }
    }

    /// Whether a native implementation exists, or the reference tier has one and may serve the device.
    #[must_use]
    pub fn available(&self, op: OpId, device: DeviceKind) -> bool {
        self.registered(op, device)
            || (self.slots[slot_index(op, DeviceKind::Cpu)].is_some()
                && self.reference_eligible(device).is_ok())
    }

    /// Whether no knob switched the operation off.
    #[must_use]
    pub fn enabled(&self, op: OpId) -> bool {
        self.switched_off_by(op).is_none()
    }

    fn switched_off_by(&self, op: OpId) -> Option<&'static str> {
        (op == OpId::FusedNormRope && !self.knobs.fused_norm_rope)
            .then_some("VT_MLA_FUSED_NORM_ROPE=0")
    }

    /// Uses of the reference tier so far.
    #[must_use]
    pub fn reference_hits(&self) -> u64 {
        self.reference_hits.load(Ordering::Relaxed)
    }

    /// Starts (from zero) or stops the clock of every operation. What it counts is host time, which is the operation's own
    /// only where operations end before they return: on the CPU.
    pub fn time_operations(&self, on: bool) {
        if on {
            self.spent
                .iter()
                .for_each(|ns| ns.store(0, Ordering::Relaxed));
        }
        self.timed.store(on, Ordering::Relaxed);
    }

    /// What each operation took while the clock was on; operations that did not run are left out.
    #[must_use]
    pub fn time_spent(&self) -> Vec<(OpId, Duration)> {
        let spent = self.spent.iter().map(|ns| ns.load(Ordering::Relaxed));
        let all = OpId::ALL.iter().copied().zip(spent);
        all.filter(|(_, ns)| *ns > 0)
            .map(|(op, ns)| (op, Duration::from_nanos(ns)))
            .collect()
    }

    fn slot<O: Op>(&self, device: DeviceKind) -> &[Provider<O>] {
        self.slots[slot_index(O::ID, device)]
            .as_ref()
            .and_then(|s| s.downcast_ref::<Vec<Provider<O>>>())
            .map_or(&[], Vec::as_slice)
    }

    /// The provider that serves these arguments on the device.
    ///
    /// # Errors
    /// No provider does; the refusal lists every cause that holds.
    pub fn select<O: Op>(
        &self,
        device: DeviceKind,
        args: &O::Args<'_>,
    ) -> Result<Provider<O>, Refusal> {
        let mut causes = Vec::new();
        if let Some(knob) = self.switched_off_by(O::ID) {
            causes.push(Cause::SwitchedOff { knob });
        }
        let chosen = self.choose::<O>(device, args, &mut causes);
        match chosen {
            Some(provider)
                if causes
                    .iter()
                    .all(|c| !matches!(c, Cause::SwitchedOff { .. })) =>
            {
                self.trace::<O>(device, &provider);
                Ok(provider)
            }
            _ => Err(Refusal {
                op: O::ID,
                device,
                causes,
            }),
        }
    }

    fn choose<O: Op>(
        &self,
        device: DeviceKind,
        args: &O::Args<'_>,
        causes: &mut Vec<Cause>,
    ) -> Option<Provider<O>> {
        if self.tier == TierChoice::ReferenceOnly {
            causes.push(Cause::TierExcluded { tier: Tier::Native });
        } else {
            let mut natives = self
                .slot::<O>(device)
                .iter()
                .filter(|p| p.tier == Tier::Native)
                .peekable();
            if natives.peek().is_none() {
                causes.push(Cause::NotRegistered);
            }
            for provider in natives {
                match (provider.supports)(args) {
                    Ok(()) => return Some(*provider),
                    Err(why) => causes.push(Cause::Shape {
                        provider: provider.name,
                        why,
                    }),
                }
            }
        }
        if self.tier == TierChoice::NativeOnly {
            causes.push(Cause::TierExcluded {
                tier: Tier::Reference,
            });
            return None;
        }
        if let Err(why) = self.reference_eligible(device) {
            causes.push(Cause::ReferenceNotEligible { why });
            return None;
        }
        let reference = self
            .slot::<O>(DeviceKind::Cpu)
            .iter()
            .find(|p| p.tier == Tier::Reference);
        if reference.is_none() {
            causes.push(Cause::NoReference);
        }
        reference.copied()
    }

    fn trace<O: Op>(&self, device: DeviceKind, provider: &Provider<O>) {
        if self.traced[slot_index(O::ID, device)].swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(observer) = &self.observer {
            observer(&Selected {
                op: O::ID,
                device,
                name: provider.name,
                tier: provider.tier,
                priority: provider.priority,
                registered: self.registered(O::ID, device),
            });
        }
    }

    /// Selects and runs, counting a use of the reference tier.
    ///
    /// # Errors
    /// A refusal, or what the provider failed with.
    pub fn run<O: Op>(
        &self,
        ctx: &mut Ctx<'_>,
        device: DeviceKind,
        args: O::Args<'_>,
    ) -> Result<(), OpError> {
        let provider = self.select::<O>(device, &args)?;
        if provider.tier == Tier::Reference {
            self.reference_hits.fetch_add(1, Ordering::Relaxed);
        }
        if !self.timed.load(Ordering::Relaxed) {
            return (provider.run)(ctx, args);
        }
        let started = Instant::now();
        let done = (provider.run)(ctx, args);
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent[O::ID.index()].fetch_add(ns, Ordering::Relaxed);
        done
    }
}

#[cfg(test)]
mod tests;
