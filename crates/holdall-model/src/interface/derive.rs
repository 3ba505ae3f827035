//! The types that a definition file defines: a service's request, response and event, an action's derived
//! types.

use super::{
    Arity, Constant, Element, Field, FieldDefault, FieldType, IndividualTypeDescription, InterfaceError,
    InterfaceSource, MessageSpec, Primitive, SourceFormat, parse,
};
use std::collections::BTreeMap;

/// All types that a source defines, the named one first.
pub(super) fn describe(
    type_name: &str,
    source: &InterfaceSource,
) -> Result<Vec<IndividualTypeDescription>, InterfaceError> {
    let struct_of = |suffix: &str, spec: MessageSpec| {
        IndividualTypeDescription::new(format!("{type_name}{suffix}"), spec.fields)
    };
    match source.format {
        SourceFormat::Msg => Ok(vec![struct_of(
            "",
            parse::parse_message(type_name, &source.text)?,
        )]),
        SourceFormat::Srv => {
            let [request, response] = parse::parse_parts(type_name, &source.text)?;
            let structs = [struct_of("_Request", request), struct_of("_Response", response)];
            Ok(service_types(type_name, structs))
        }
        SourceFormat::Action => {
            let [goal, result, feedback] = parse::parse_parts(type_name, &source.text)?;
            let structs = [
                struct_of("_Goal", goal),
                struct_of("_Result", result),
                struct_of("_Feedback", feedback),
            ];
            Ok(action_types(type_name, structs))
        }
        SourceFormat::Idl => super::idl::describe(type_name, &source.text),
    }
}

/// The default values that a source defines, by struct and field; structs without any are left out.
pub(super) fn defaults(
    type_name: &str,
    source: &InterfaceSource,
) -> Result<BTreeMap<String, BTreeMap<String, FieldDefault>>, InterfaceError> {
    if source.format == SourceFormat::Idl {
        return super::idl::defaults(type_name, &source.text);
    }
    let mut found = BTreeMap::new();
    for (name, spec) in specs(type_name, source)? {
        let of_struct: BTreeMap<String, FieldDefault> = spec
            .fields
            .into_iter()
            .zip(spec.defaults)
            .filter_map(|(field, default)| Some((field.name, FieldDefault::Msg(default?))))
            .collect();
        if !of_struct.is_empty() {
            found.insert(name, of_struct);
        }
    }
    Ok(found)
}

/// The constants that a source defines for a struct, in order: type, name, value as written.
pub(super) fn constants(
    type_name: &str,
    source: &InterfaceSource,
    of_struct: &str,
) -> Result<Vec<Constant>, InterfaceError> {
    if source.format == SourceFormat::Idl {
        return super::idl::constants(type_name, &source.text, of_struct);
    }
    let found = specs(type_name, source)?
        .into_iter()
        .find(|(name, _)| name == of_struct);
    Ok(found.map(|(_, spec)| spec.constants).unwrap_or_default())
}

/// The message texts in a source that is not IDL, by the structs that they define.
fn specs(type_name: &str, source: &InterfaceSource) -> Result<Vec<(String, MessageSpec)>, InterfaceError> {
    let (suffixes, specs): (&[&str], Vec<MessageSpec>) = match source.format {
        SourceFormat::Msg => (&[""], vec![parse::parse_message(type_name, &source.text)?]),
        SourceFormat::Srv => (
            &["_Request", "_Response"],
            parse::parse_parts::<2>(type_name, &source.text)?.into(),
        ),
        SourceFormat::Action => (
            &["_Goal", "_Result", "_Feedback"],
            parse::parse_parts::<3>(type_name, &source.text)?.into(),
        ),
        SourceFormat::Idl => (&[], Vec::new()),
    };
    let names = suffixes.iter().map(|suffix| format!("{type_name}{suffix}"));
    Ok(names.zip(specs).collect())
}

/// A service, its request, its response, and its event (for introspection).
pub(super) fn service_types(
    type_name: &str,
    [request, response]: [IndividualTypeDescription; 2],
) -> Vec<IndividualTypeDescription> {
    let up_to_one = |type_name: &str| FieldType {
        element: Element::Nested(type_name.to_owned()),
        arity: Arity::BoundedSequence(1),
    };
    let event = IndividualTypeDescription::new(
        format!("{type_name}_Event"),
        vec![
            Field::new("info", nested("service_msgs/msg/ServiceEventInfo")),
            Field::new("request", up_to_one(&request.type_name)),
            Field::new("response", up_to_one(&response.type_name)),
        ],
    );
    let service = IndividualTypeDescription::new(
        type_name,
        vec![
            Field::new("request_message", nested(&request.type_name)),
            Field::new("response_message", nested(&response.type_name)),
            Field::new("event_message", nested(&event.type_name)),
        ],
    );
    vec![service, request, response, event]
}

/// An action, its three parts, and the services and the message that carry them.
pub(super) fn action_types(
    type_name: &str,
    [goal, result, feedback]: [IndividualTypeDescription; 3],
) -> Vec<IndividualTypeDescription> {
    let derived = |suffix: &str, fields: Vec<Field>| {
        IndividualTypeDescription::new(format!("{type_name}{suffix}"), fields)
    };
    let goal_id = || Field::new("goal_id", nested("unique_identifier_msgs/msg/UUID"));
    let primitive = |name, primitive| Field::new(name, FieldType::one(Element::Primitive(primitive)));
    let send_goal = service_types(
        &format!("{type_name}_SendGoal"),
        [
            derived(
                "_SendGoal_Request",
                vec![goal_id(), Field::new("goal", nested(&goal.type_name))],
            ),
            derived(
                "_SendGoal_Response",
                vec![
                    primitive("accepted", Primitive::Boolean),
                    Field::new("stamp", nested("builtin_interfaces/msg/Time")),
                ],
            ),
        ],
    );
    let get_result = service_types(
        &format!("{type_name}_GetResult"),
        [
            derived("_GetResult_Request", vec![goal_id()]),
            derived(
                "_GetResult_Response",
                vec![
                    primitive("status", Primitive::Int8),
                    Field::new("result", nested(&result.type_name)),
                ],
            ),
        ],
    );
    let feedback_message = derived(
        "_FeedbackMessage",
        vec![goal_id(), Field::new("feedback", nested(&feedback.type_name))],
    );
    let action = derived(
        "",
        vec![
            Field::new("goal", nested(&goal.type_name)),
            Field::new("result", nested(&result.type_name)),
            Field::new("feedback", nested(&feedback.type_name)),
            Field::new("send_goal_service", nested(&send_goal[0].type_name)),
            Field::new("get_result_service", nested(&get_result[0].type_name)),
            Field::new("feedback_message", nested(&feedback_message.type_name)),
        ],
    );
    let mut types = vec![action, goal, result, feedback, feedback_message];
    types.extend(send_goal);
    types.extend(get_result);
    types
}

fn nested(type_name: &str) -> FieldType {
    FieldType::one(Element::Nested(type_name.to_owned()))
}
