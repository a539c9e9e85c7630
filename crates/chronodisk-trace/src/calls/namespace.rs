//! Names of files as a tree, so that a renamed directory takes all open files below it along.

use std::collections::BTreeMap;

use super::record::PATH_BYTES_MAX;

/// A file that a name leads to, or led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(u32);

#[derive(Debug)]
pub(crate) struct Namespace {
    /// Parent and last component; the root is its own parent.
    nodes: Vec<(Node, Vec<u8>)>,
    children: BTreeMap<(Node, Vec<u8>), Node>,
}

impl Namespace {
    pub const ROOT: Node = Node(0);

    pub fn new() -> Self {
        Namespace { nodes: vec![(Self::ROOT, Vec::new())], children: BTreeMap::new() }
    }

    /// The node of an absolute path in its shortest form.
    pub fn node(&mut self, path: &[u8]) -> Node {
        let mut at = Self::ROOT;
        for component in path.split(|&byte| byte == b'/').filter(|component| !component.is_empty()) {
            let key = (at, component.to_vec());
            at = match self.children.get(&key) {
                Some(&child) => child,
                None => {
                    let child = Node(u32::try_from(self.nodes.len()).expect("fewer names than bytes of a trace"));
                    self.nodes.push((at, component.to_vec()));
                    self.children.insert(key, child);
                    child
                }
            };
        }
        at
    }

    /// The node's current path; `None` if it is longer than a path may be.
    pub fn path(&self, node: Node) -> Option<Vec<u8>> {
        let mut components: Vec<&[u8]> = Vec::new();
        let (mut at, mut bytes) = (node, 0);
        while at != Self::ROOT {
            let (parent, name) = &self.nodes[at.0 as usize];
            bytes += name.len() + 1;
            if bytes > PATH_BYTES_MAX {
                return None;
            }
            components.push(name);
            at = *parent;
        }
        if components.is_empty() {
            return Some(b"/".to_vec());
        }
        let mut path = Vec::with_capacity(bytes);
        for component in components.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(component);
        }
        Some(path)
    }

    /// Renames the file at `from` to `to`; both are absolute. With `exchange`, both files exchange names.
    pub fn rename(&mut self, from: &[u8], to: &[u8], exchange: bool) {
        // No kernel moves a directory below itself or replaces one of its parents, but a trace may claim it.
        if from == to || super::is_below(from, to) || super::is_below(to, from) || from == b"/" || to == b"/" {
            return;
        }
        let (source, target) = (self.node(from), self.node(to));
        let (old, new) = (self.nodes[source.0 as usize].clone(), self.nodes[target.0 as usize].clone());
        self.children.insert(new.clone(), source);
        self.nodes[source.0 as usize] = new;
        if exchange {
            self.nodes[target.0 as usize] = old.clone();
            self.children.insert(old, target);
        } else {
            // The replaced file keeps its old name for tasks that have it open.
            self.children.remove(&old);
        }
    }
}
