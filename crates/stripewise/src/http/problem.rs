//! What went wrong, as every answer that is no success has it: problem details (RFC 9457), in the
//! words of HTTP. Commands speak of options and of other commands; a caller over HTTP knows
//! neither.

use axum::body::to_bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use stripewise_control::plain::cut;
use utoipa::ToSchema;

use crate::printer::OUTPUT_VERSION;

/// Bytes of a detail or hint: what a caller sent may be in it, and need not come back whole.
const MOST_TOLD_BYTES: usize = 4000;
/// Of what the router says of a request.
const MOST_TEXT_BYTES: usize = 64 << 10;

/// What went wrong.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    output_version: u32,
    /// The status in words.
    title: &'static str,
    /// The status again.
    status: u16,
    /// What, where and why.
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Where it was done and the outcome is bad: the document that tells the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    document: Option<Value>,
}

/// A problem as an answer.
pub(crate) fn error(status: StatusCode, detail: &str, hint: Option<&str>) -> impl IntoResponse + use<> {
    bad_outcome(status, detail, hint, None)
}

/// As [`error`], with the document of what was done all the same.
pub(super) fn bad_outcome(
    status: StatusCode,
    detail: &str,
    hint: Option<&str>,
    document: Option<Value>,
) -> impl IntoResponse + use<> {
    let problem = Problem {
        output_version: OUTPUT_VERSION,
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: cut(detail, MOST_TOLD_BYTES),
        hint: hint.map(|hint| cut(hint, MOST_TOLD_BYTES)),
        document,
    };
    let text = serde_json::to_string(&problem).expect("plain data becomes JSON");
    (status, [(header::CONTENT_TYPE, "application/problem+json")], text)
}

/// A message without command-line options: `--size <SIZE>` is the field `size`.
pub(super) fn text(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        let is_start = !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '-');
        let name: &str = &option[2..];
        let end =
            name.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-').unwrap_or(name.len());
        if !is_start || end == 0 {
            out.push_str(before);
            out.push_str("--");
            rest = name;
            continue;
        }
        let (name, mut behind) = name.split_at(end);
        let quote = before.chars().next_back().filter(|quote| "'`".contains(*quote));
        out.push_str(before.trim_end_matches(['\'', '`']));
        // The placeholder of its value, and the quote that both stand in.
        if let Some(value) = behind.strip_prefix([' ', '=']).and_then(|value| value.strip_prefix('<')) {
            behind = value.split_once('>').map_or("", |(_, behind)| behind);
        }
        if let Some(quote) = quote {
            behind = behind.strip_prefix(quote).unwrap_or(behind);
        }
        out.push_str(&format!("`{}`", name.replace('-', "_")));
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// What to do, unless that is to type a command.
pub(super) fn hint(hint: &str) -> Option<String> {
    if hint.ends_with("--yes") {
        return Some("if that is what you want: `yes=true` in the query".to_owned());
    }
    let names_a_command = hint.contains("stripewise ") || hint.contains("--help");
    (!names_a_command).then(|| text(hint))
}

/// Gives answers of the same shape to what the router itself refuses: bodies that are no JSON,
/// methods that a path does not have.
pub(super) async fn in_one_shape(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem+json"));
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MOST_TEXT_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let text = if text.is_empty() { "the request makes no sense".to_owned() } else { text };
    let mut answer = error(status, &text, None).into_response();
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_fields_not_options() {
        for (typed, told) in [
            (
                "invalid value 'raid9' for '--layout <LAYOUT>': there is none",
                "invalid value 'raid9' for `layout`: there is none",
            ),
            ("--force overwrites it", "`force` overwrites it"),
            ("add `--space-warning=<PERCENT>` to it", "add `space_warning` to it"),
            ("nothing -- at all", "nothing -- at all"),
            ("a--b", "a--b"),
        ] {
            assert_eq!(text(typed), told);
        }
        assert_eq!(hint("run `stripewise pool status`"), None);
        let confirmed = hint("if that is what you want: stripewise pool destroy tank --yes");
        assert!(confirmed.is_some_and(|hint| hint.contains("`yes=true`")));
        assert_eq!(hint("add --force to overwrite it"), Some("add `force` to overwrite it".to_owned()));
    }
}
