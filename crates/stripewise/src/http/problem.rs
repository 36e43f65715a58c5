//! Problem details (RFC 9457) for every answer that is no success, in the terms of HTTP: messages
//! of commands name options and other commands, which HTTP callers do not know.

use axum::body::to_bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use stripewise_control::plain::cut;
use utoipa::ToSchema;

use crate::printer::OUTPUT_VERSION;

/// Maximum length of a detail or hint, bytes: it may quote input, which need not come back whole.
const MAX_QUOTED_BYTES: usize = 4000;
/// Maximum length of a message of the router, bytes.
const MOST_TEXT_BYTES: usize = 64 << 10;

/// A problem.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    output_version: u32,
    /// The name of the status.
    title: &'static str,
    /// The status code.
    status: u16,
    /// The failure: what, where and why.
    detail: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The next step on the command line, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_hint: Option<String>,
    /// The document, if the request was done with a bad outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    document: Option<Value>,
}

/// A problem as an answer.
pub(crate) fn error(status: StatusCode, detail: &str, hint: Option<&str>) -> impl IntoResponse + use<> {
    answer(status, detail, hint, None, None)
}

/// As [`error`], with the hint of a command.
pub(super) fn with_command_hint(status: StatusCode, detail: &str, command_hint: Option<&str>) -> Response {
    let over_http = command_hint.and_then(hint);
    let other = command_hint.filter(|command_hint| over_http.as_deref() != Some(command_hint));
    answer(status, &text(detail), over_http.as_deref(), other, None).into_response()
}

/// As [`error`], with the document of a request that was done.
pub(super) fn bad_outcome(
    status: StatusCode,
    detail: &str,
    hint: Option<&str>,
    document: Option<Value>,
) -> impl IntoResponse + use<> {
    answer(status, detail, hint, None, document)
}

fn answer(
    status: StatusCode,
    detail: &str,
    hint: Option<&str>,
    command_hint: Option<&str>,
    document: Option<Value>,
) -> impl IntoResponse + use<> {
    let problem = Problem {
        output_version: OUTPUT_VERSION,
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: cut(detail, MAX_QUOTED_BYTES),
        hint: hint.map(|hint| cut(hint, MAX_QUOTED_BYTES)),
        command_hint: command_hint.map(|hint| cut(hint, MAX_QUOTED_BYTES)),
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
        // Drops the placeholder of its value, and the closing quote.
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

/// A hint for HTTP; `None` if it suggests a command.
pub(super) fn hint(hint: &str) -> Option<String> {
    if hint.ends_with("--yes") {
        return Some("if that is what you want: `yes=true` in the query".to_owned());
    }
    let names_a_command = hint.contains("stripewise ") || hint.contains("--help");
    (!names_a_command).then(|| text(hint))
}

/// Turns refusals of the router itself into problems: bodies that are not JSON, methods that a path
/// does not have.
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
    let text = if text.is_empty() { "invalid request".to_owned() } else { text };
    let mut answer = error(status, &text, None).into_response();
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    answer
}

/// There is no memory for a request now.
pub(super) fn no_memory() -> Response {
    let again = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let text = "the memory for connections is in use";
    (again, error(StatusCode::SERVICE_UNAVAILABLE, text, Some("try again"))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_fields_not_options() {
        for (message, expected) in [
            (
                "invalid value 'raid9' for '--layout <LAYOUT>': there is none",
                "invalid value 'raid9' for `layout`: there is none",
            ),
            ("--force overwrites it", "`force` overwrites it"),
            ("add `--space-warning=<PERCENT>` to it", "add `space_warning` to it"),
            ("nothing -- at all", "nothing -- at all"),
            ("a--b", "a--b"),
        ] {
            assert_eq!(text(message), expected);
        }
        assert_eq!(hint("run `stripewise pool status`"), None);
        let confirmed = hint("if that is what you want: stripewise pool destroy tank --yes");
        assert!(confirmed.is_some_and(|hint| hint.contains("`yes=true`")));
        assert_eq!(hint("add --force to overwrite it"), Some("add `force` to overwrite it".to_owned()));
    }
}
