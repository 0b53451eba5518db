//! The model's chat template: Jinja text in its metadata, run as `transformers` runs it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// Steps that a template may take; GLM's longest needs a few per message. Bounds a hostile template.
const FUEL: u64 = 20_000_000;

/// Why messages could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The model has no template.
    #[error(
        "the model has no chat template (`tokenizer.chat_template`); give a plain prompt instead of --chat"
    )]
    NoTemplate,
    /// The template does not compile.
    #[error("the model's chat template does not compile: {0}")]
    Compile(String),
    /// The template refused the messages or failed on them.
    #[error("the model's chat template failed: {0}")]
    Render(String),
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

/// A plain message.
pub fn message(role: &str, content: &str) -> serde_json::Value {
    serde_json::json!({"role": role, "content": content})
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` become its `bos_token` and `eos_token`.
    pub fn new(
        source: &str,
        bos: Option<String>,
        eos: Option<String>,
    ) -> Result<ChatTemplate, ChatError> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        env.set_syntax(syntax.map_err(|e| ChatError::Compile(chain(&e)))?);
        env.set_fuel(Some(FUEL));
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", to_json);
        env.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        env.add_function("strftime_now", strftime_now);
        env.add_template_owned("chat", source.to_owned())
            .map_err(|e| ChatError::Compile(chain(&e)))?;
        Ok(ChatTemplate { env, bos, eos })
    }

    /// Renders messages (objects with at least `role` and `content`).
    ///
    /// `extra` holds whatever else the template reads, e.g. `enable_thinking`, `reasoning_effort`,
    /// `tools`. `add_generation_prompt` appends the opening of the assistant's turn.
    pub fn apply(
        &self,
        messages: &[serde_json::Value],
        add_generation_prompt: bool,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, ChatError> {
        let template = self
            .env
            .get_template("chat")
            .map_err(|e| ChatError::Compile(chain(&e)))?;
        let text = |text: &Option<String>| text.clone().map_or(Value::UNDEFINED, Value::from);
        let mut names = vec![
            (
                "messages".to_owned(),
                messages
                    .iter()
                    .map(value)
                    .collect::<Result<Vec<_>, _>>()?
                    .into(),
            ),
            (
                "add_generation_prompt".to_owned(),
                add_generation_prompt.into(),
            ),
            ("bos_token".to_owned(), text(&self.bos)),
            ("eos_token".to_owned(), text(&self.eos)),
        ];
        for (name, json) in extra {
            names.push((name.clone(), value(json)?));
        }
        template
            .render(Value::from_pairs(names))
            .map_err(|e| ChatError::Render(chain(&e)))
    }
}

fn value(json: &serde_json::Value) -> Result<Value, ChatError> {
    Value::deserialize(json).map_err(|e| ChatError::Render(e.to_string()))
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// `tojson` as in `transformers`: Python's separators, nothing escaped for HTML.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted and without effect: text is never escaped to ASCII, keys keep their order.
    let _: (Option<bool>, Option<bool>, Option<Value>) = (
        options.get("ensure_ascii")?,
        options.get("sort_keys")?,
        options.get("separators")?,
    );
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = " ".repeat(width.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, pretty,
            ))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out,
            PythonFormatter,
        )),
    };
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let text = String::from_utf8(out)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from_safe_string(text))
}

/// JSON with a space after `,` and `:`, as Python's `json.dumps` writes it.
struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
    ) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// The local time in a `strftime` format: some templates print the date.
fn strftime_now(format: String) -> Result<String, Error> {
    let fail =
        |what: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {what}"));
    let format = std::ffi::CString::new(format).map_err(|_| fail("the format holds a NUL"))?;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| fail("the clock is before 1970"))?;
    let seconds = now.as_secs() as libc::time_t;
    let mut out = [0u8; 256];
    // SAFETY: `tm` is plain data that localtime_r fills before it is read; both pointers outlive the calls;
    // strftime writes at most `out.len()` bytes and `format` ends in NUL.
    let len = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut tm).is_null() {
            return Err(fail("no local time"));
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), &tm)
    };
    Ok(String::from_utf8_lossy(&out[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{ChatError, ChatTemplate, message};
    use serde_json::{Map, Value, json};

    fn render(template: &str, messages: &[Value], extra: Value) -> Result<String, ChatError> {
        let extra: Map<String, Value> = extra.as_object().cloned().unwrap_or_default();
        ChatTemplate::new(template, Some("<bos>".into()), None)?.apply(messages, true, &extra)
    }

    #[test]
    fn runs_what_glm_templates_use() {
        let template = "{%- set ns = namespace(last=-1) -%}\n{%- macro visible(c) -%}\n{%- if c is string -%}{{ c }}{%- elif c is iterable and c is not mapping -%}\n{%- for item in c -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- endif -%}{%- endfor -%}\n{%- endif -%}\n{%- endmacro -%}\n{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{%- endfor %}\n{%- if tools %}<|system|>{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}{% endfor %}{% endif -%}\n{%- for m in messages -%}\n<|{{ m.role }}|>{{ visible(m.content).split('</think>')[-1].strip() }}\n{%- endfor -%}\n{%- if add_generation_prompt %}<|assistant|>{{ '</think>' if (enable_thinking is defined and not enable_thinking) else '<think>' }}{% endif %}{{ bos_token }}{{ ns.last }}";
        let messages = [
            message("user", " hi "),
            message("assistant", "<think>x</think> yes"),
            json!({"role": "user", "content": [{"type": "text", "text": "a<b"}, {"type": "image"}]}),
        ];
        let extra = json!({"enable_thinking": false, "tools": [{"name": "f<ü>", "args": {"b": 1, "a": [true, null]}}]});
        assert_eq!(
            render(template, &messages, extra).unwrap(),
            "<|system|>{\"name\": \"f<ü>\", \"args\": {\"b\": 1, \"a\": [true, null]}}<|user|>hi<|assistant|>yes<|user|>a<b<|assistant|></think><bos>2"
        );
    }

    #[test]
    fn failures_carry_the_templates_words() {
        let said = render(
            "{{ raise_exception('roles must alternate') }}",
            &[],
            json!({}),
        )
        .unwrap_err()
        .to_string();
        assert!(said.contains("roles must alternate"), "{said}");
        assert!(matches!(
            render("{% if %}", &[], json!({})),
            Err(ChatError::Compile(_))
        ));
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% set x = c %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(matches!(
            render(endless, &[], json!({})),
            Err(ChatError::Render(_))
        ));
        assert_eq!(
            render("{{ strftime_now('%Y') | length }}", &[], json!({})).unwrap(),
            "4"
        );
        assert_eq!(
            render("{{ {'a': 1} | tojson(indent=2) }}", &[], json!({})).unwrap(),
            "{\n  \"a\": 1\n}"
        );
    }
}
