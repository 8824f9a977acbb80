pub(crate) fn svg(_: &crate::results::Results) -> String { String::new() }
