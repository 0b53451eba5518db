//! The plan as tables for people: what `legwork check` prints.

use comfy_table::{ContentArrangement, Table, presets};

use super::Plan;
use crate::legfile::{LegSet, LegSpec, format_duration};

/// The plan as text: legs, order, gates, comparisons, budget, warnings, owed legs.
#[must_use]
pub fn table(set: &LegSet, plan: &Plan, width: Option<u16>) -> String {
    let mut out = format!("leg set  {}\n", set.name);
    if let Some(question) = &set.question {
        out.push_str(&format!("question {question}\n"));
    }
    let counted = plan.steps.iter().filter(|s| !s.warmup).count();
    out.push_str(&format!(
        "order    {}, seed {}; {} attempts: {counted} counted, {} warm-up\n",
        set.order.as_str(),
        plan.seed,
        plan.steps.len(),
        plan.steps.len() - counted,
    ));
    let mut legs = new_table(width);
    legs.set_header([
        "leg",
        "",
        "runs",
        "differs from the control in",
        "deadlines",
        "command",
    ]);
    for (leg, differs) in set.legs.iter().zip(&plan.differs) {
        let variables: Vec<String> = differs.iter().map(super::variables::setting).collect();
        legs.add_row([
            leg.name.clone(),
            marks(leg),
            leg.repeat.to_string(),
            if leg.control {
                "(control)".to_owned()
            } else {
                variables.join("\n")
            },
            deadlines(leg),
            clip(&crate::run::quoted(&leg.command_line()), 100),
        ]);
    }
    out.push_str(&format!("{legs}\n"));
    let order: Vec<String> = plan
        .steps
        .iter()
        .map(|s| {
            format!(
                "{}{}",
                set.legs[s.leg].name,
                if s.warmup { "*" } else { "" }
            )
        })
        .collect();
    out.push_str(&format!("runs     {}\n", clip(&order.join(" "), 600)));
    for words in set
        .gates
        .iter()
        .flat_map(legwork_reports::gates::Gate::describe)
    {
        out.push_str(&format!(
            "gate     {words}
"
        ));
    }
    for pair in &set.compare {
        let differs = super::pair_differences(set, &pair.a, &pair.b);
        let note = match differs.as_slice() {
            [] => "they do not differ".to_owned(),
            [one] => super::variables::setting(one),
            more => format!(
                "CONFOUNDED({}): {}",
                more.len(),
                more.iter()
                    .map(|d| d.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        out.push_str(&format!("compare  {} with {} ({note})\n", pair.b, pair.a));
    }
    for (name, value) in &set.pins {
        out.push_str(&format!("pin      {name} = {value}\n"));
    }
    if let Some(worst) = plan.budget.worst_case {
        out.push_str(&format!("time     at most {}", format_duration(worst)));
        if let Some(available) = plan.budget.available {
            out.push_str(&format!(
                ", the lease leaves {}",
                format_duration(available)
            ));
        }
        out.push('\n');
    }
    for warning in &plan.warnings {
        out.push_str(&format!("warning  {warning}\n"));
    }
    for owed in &plan.owed {
        out.push_str(&format!("owed     {} ({})\n", owed.leg, owed.why));
    }
    out
}

fn new_table(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.unwrap_or(120));
    table
}

fn marks(leg: &LegSpec) -> String {
    let mut marks = Vec::new();
    if leg.control {
        marks.push("control");
    }
    if leg.diagnostic {
        marks.push("diagnostic");
    }
    marks.join(", ")
}

fn deadlines(leg: &LegSpec) -> String {
    let mut parts = Vec::new();
    if let Some(total) = leg.timeout.total {
        parts.push(format_duration(total));
    }
    if let Some(idle) = leg.timeout.idle {
        parts.push(format!("idle {}", format_duration(idle)));
    }
    parts.extend(
        leg.timeout
            .phases
            .iter()
            .map(|(name, bound)| format!("{name} {}", format_duration(*bound))),
    );
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join("\n")
    }
}

fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(most).collect::<String>())
}
