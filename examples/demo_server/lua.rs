//! Scripts: EVAL and its relatives on a Lua of our own, which sees what `prelude.lua` shows it. Called
//! by the engine; calls commands back through the state that both share.
//!
//! A script that fails stays half done, as in Redis.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use distlock::redis::Script;
use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, Variadic};

use super::{
    commands::{Outcome, integer},
    engine::{State, VERSION},
    resp::{Reply, Word},
};

pub(crate) struct Scripts {
    lua: Lua,
    /// Of the prelude: runs a script with its keys and arguments.
    run: Function,
    /// By the digest of the source.
    known: HashMap<String, Function>,
}

const NAME: &str = "@user_script";

impl Scripts {
    pub(crate) fn new(state: &Rc<RefCell<State>>) -> Scripts {
        let run = |lua: &Lua| {
            let state = Rc::clone(state);
            let command = lua.create_function(move |lua, words: Variadic<LuaString>| {
                let words: Vec<Word> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                to_lua(lua, state.borrow_mut().call(&words).unwrap_or_else(Reply::Error))
            })?;
            let raising = lua.create_function(raising)?;
            let raised = lua.create_function(|_, problem: Value| Ok(raised(&problem)))?;
            let line = lua.create_function(|lua, ()| Ok(line(lua)))?;
            let given = (command, raising, raised, line, VERSION);
            lua.load(include_str!("prelude.lua")).set_name("@prelude").call(given)
        };
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, options).expect("safe libraries");
        let run = run(&lua).expect("the prelude runs");
        Scripts { lua, run, known: HashMap::new() }
    }

    pub(crate) fn eval(&mut self, words: &[Word]) -> Outcome {
        let digest = self.learn(&words[1])?;
        self.run(&digest, words)
    }

    pub(crate) fn evalsha(&mut self, words: &[Word]) -> Outcome {
        self.run(&String::from_utf8_lossy(&words[1]).to_ascii_lowercase(), words)
    }

    pub(crate) fn load(&mut self, words: &[Word]) -> Outcome {
        Ok(Reply::bulk(self.learn(&words[2])?))
    }

    pub(crate) fn exists(&mut self, words: &[Word]) -> Outcome {
        let is_known = |word: &Word| self.known.contains_key(&String::from_utf8_lossy(word).to_ascii_lowercase());
        Ok(Reply::Array(words[2..].iter().map(|word| Reply::Int(is_known(word).into())).collect()))
    }

    pub(crate) fn flush(&mut self, words: &[Word]) -> Outcome {
        let fits = |how: &Word| how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async");
        if words.len() > 3 || !words[2..].iter().all(fits) {
            return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".to_owned());
        }
        self.known.clear();
        Ok(Reply::ok())
    }

    fn learn(&mut self, source: &[u8]) -> Result<String, String> {
        let digest = digest(source)?;
        if !self.known.contains_key(&digest) {
            let compiled = self.lua.load(source).set_name(NAME).set_mode(mlua::chunk::ChunkMode::Text).into_function();
            let function = compiled.map_err(|e| {
                let text = if let mlua::Error::SyntaxError { message, .. } = e { message } else { e.to_string() };
                format!("ERR Error compiling script (new function): {text}")
            })?;
            self.known.insert(digest.clone(), function);
        }
        Ok(digest)
    }

    fn run(&self, digest: &str, words: &[Word]) -> Outcome {
        let count = integer(&words[2])?;
        let rest = &words[3..];
        if count > i64::try_from(rest.len()).unwrap_or(i64::MAX) {
            return Err("ERR Number of keys can't be greater than number of args".to_owned());
        }
        let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
        let script = self.known.get(digest).ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
        let answer = self.call(script, &rest[..count], &rest[count..]);
        // Out of memory, and what else is no error of the script's.
        let (done, value) = answer.map_err(|e| format!("ERR {e}"))?;
        match value {
            Value::Table(problem) if !done => Err(explain(&problem, digest)),
            value => Ok(to_reply(&value)),
        }
    }

    fn call(&self, script: &Function, keys: &[Word], args: &[Word]) -> mlua::Result<(bool, Value)> {
        let table = |words: &[Word]| {
            self.lua.create_sequence_from(
                words.iter().map(|word| self.lua.create_string(word)).collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        self.run.call((script, table(keys)?, table(args)?))
    }
}

/// SHA-1 as the redis crate has it, which hashes text only.
fn digest(source: &[u8]) -> Result<String, String> {
    let text = str::from_utf8(source).map_err(|_| "ERR the demo server takes scripts in UTF-8")?;
    Ok(Script::new(text).get_hash().to_owned())
}

/// The same function, but an answer that is an error is raised.
fn raising(lua: &Lua, function: Function) -> mlua::Result<Function> {
    lua.create_function(move |_, args: MultiValue| {
        let answer: Value = function.call(args)?;
        match answer.as_table().map(|table| table.raw_get::<Value>("err")).transpose()? {
            Some(text @ Value::String(_)) => Err(mlua::Error::RuntimeError(text_of(&text))),
            _ => Ok(answer),
        }
    })
}

/// The text of what `raising` raised.
fn raised(problem: &Value) -> Option<String> {
    let mut error = problem.as_error()?;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    if let mlua::Error::RuntimeError(text) = error { Some(text.clone()) } else { Some(format!("ERR {error}")) }
}

/// Where the script stands, called by the prelude from within.
fn line(lua: &Lua) -> Option<usize> {
    let at = |level| {
        lua.inspect_stack(level, |frame| (frame.source().source.as_deref() == Some(NAME), frame.current_line()))
    };
    (0..).map_while(at).find(|(is_script, _)| *is_script)?.1
}

fn explain(problem: &Table, digest: &str) -> String {
    let text = problem.get::<Value>("err").map(|err| text_of(&err)).unwrap_or_default();
    match problem.get::<Option<usize>>("line") {
        Ok(Some(line)) => format!("{text} script: {digest}, on {NAME}:{line}."),
        _ => text,
    }
}

fn text_of(value: &Value) -> String {
    value.as_string().map(|text| text.to_string_lossy()).unwrap_or_default()
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let field = |name: &str, text: String| lua.create_table_from([(name, text)]).map(Value::Table);
    match reply {
        Reply::Status(text) => field("ok", text),
        Reply::Error(text) => field("err", text),
        // A Lua number: beyond 2^53 not exact, as in Redis.
        Reply::Int(n) => Ok(Value::Number(n as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Array(items) | Reply::Several(items) => {
            let items: Vec<Value> = items.into_iter().map(|item| to_lua(lua, item)).collect::<Result<_, _>>()?;
            lua.create_sequence_from(items).map(Value::Table)
        }
    }
}

fn to_reply(value: &Value) -> Reply {
    match value {
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Integer(n) => Reply::Int(*n),
        // The part after the point is lost.
        Value::Number(n) if n.is_finite() && n.abs() < 9e18 => Reply::Int(*n as i64),
        Value::Number(_) => Reply::Int(i64::MIN),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => table_to_reply(table),
        _ => Reply::Nil,
    }
}

fn table_to_reply(table: &Table) -> Reply {
    let field = |name: &str| table.raw_get::<Value>(name).ok().filter(Value::is_string).map(|text| text_of(&text));
    if let Some(text) = field("err") {
        return Reply::Error(text);
    }
    if let Some(text) = field("ok") {
        return Reply::Status(text);
    }
    Reply::Array(table.sequence_values::<Value>().flatten().map(|item| to_reply(&item)).collect())
}
