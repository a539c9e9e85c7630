//! Extracts a cell's figures from its command's output.

use std::collections::BTreeMap;

use serde_json::Value;

/// Figures by name, with units in the names. Host times are omitted, so that results under a simulated clock do not
/// depend on the host.
pub(crate) fn figures_of(result: &Value) -> Option<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    let rep = result.get("reps").and_then(|reps| reps.get(0));
    let summary = rep.unwrap_or(result).get("summary")?;
    let time_s = match rep {
        Some(rep) => rep.get("run_time_ns")?.as_f64()? / 1e9,
        None => result.get("simulated_s")?.as_f64()?,
    };
    figures.insert("time_s".to_owned(), time_s);
    if let Some(status) = rep.and_then(|rep| rep.get("exit_status")).and_then(Value::as_f64) {
        figures.insert("exit_status".to_owned(), status);
    }
    flatten("", summary, &mut figures);
    // Renamed as in the result of a simulation.
    let renamed = figures.into_iter().map(|(name, value)| (name.replace("service_time_us", "latency_us"), value));
    let of_host = ["model_time_us", "store_time_us", "window_ns"];
    Some(renamed.filter(|(name, _)| !of_host.iter().any(|host| name.starts_with(host))).collect())
}

fn flatten(prefix: &str, value: &Value, figures: &mut BTreeMap<String, f64>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&name, value, figures);
            }
        }
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                figures.insert(prefix.to_owned(), number);
            }
        }
        _ => {}
    }
}
