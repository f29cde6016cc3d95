import { invalid } from './errors.ts';
import { limits } from './limits.ts';
import { isStorableJson } from './parts.ts';
import type { InputContent, InputForm } from './questions.ts';

type Property = Record<string, unknown>;

/**
 * Reads an answer against a form (Agent Client Protocol, `ElicitationSchema`): a text answers the one property that it
 * can mean. Throws `invalid_request` at `content`. What a form says beyond types, required names and lists of values is
 * left to the agent that made it: above all its regular expressions, which would run here.
 */
export function readInput(form: InputForm, given: string | Record<string, unknown>): InputContent {
  const properties = propertiesOf(form);
  const content = typeof given === 'string' ? { [textProperty(form, properties)]: given } : given;
  if (!isStorableJson(content)) throw invalid('content', 'must be plain JSON without U+0000.');
  if (JSON.stringify(content).length > limits.answerChars) {
    throw invalid('content', `must have at most ${limits.answerChars} characters, written as JSON.`);
  }
  for (const [name, value] of Object.entries(content)) {
    const path = `content.${name}`;
    if (!isValue(value)) throw invalid(path, 'must be a text, a number, a boolean or a list of texts.');
    const property = properties.get(name);
    if (property) requireFit(path, property, value);
    else if (properties.size > 0)
      throw invalid(path, `is not asked for: ${[...properties.keys()].join(', ')}.`);
  }
  for (const name of requiredOf(form)) {
    if (properties.has(name) && !Object.hasOwn(content, name))
      throw invalid(`content.${name}`, 'is required.');
  }
  return content as InputContent;
}

/** The property that a plain text answers: the only one, else the first required text, else the first text. */
function textProperty(form: InputForm, properties: Map<string, Property>): string {
  if (properties.size === 0) return 'text';
  const names = [...properties.keys()];
  if (names.length === 1) return names[0]!;
  const required = new Set(requiredOf(form));
  const texts = names.filter((name) => properties.get(name)!['type'] === 'string');
  const name = texts.find((text) => required.has(text)) ?? texts[0];
  if (name === undefined) throw invalid('content', `must be an object with ${names.join(', ')}.`);
  return name;
}

function requireFit(path: string, property: Property, value: InputContent[string]): void {
  switch (property['type']) {
    case 'string':
      if (typeof value !== 'string') throw invalid(path, 'must be a text.');
      return requireListed(path, property, [value]);
    case 'number':
    case 'integer': {
      const isFit = typeof value === 'number' && (property['type'] === 'number' || Number.isInteger(value));
      if (!isFit)
        throw invalid(path, `must be ${property['type'] === 'number' ? 'a number' : 'a whole number'}.`);
      return;
    }
    case 'boolean':
      if (typeof value !== 'boolean') throw invalid(path, 'must be true or false.');
      return;
    case 'array':
      if (!Array.isArray(value)) throw invalid(path, 'must be a list of texts.');
      return requireListed(path, isRecord(property['items']) ? property['items'] : {}, value);
    default:
  }
}

/** Choices are given as `enum`, or as `oneOf` or `anyOf` of constants with titles. */
function requireListed(path: string, property: Property, values: string[]): void {
  const titled = [property['oneOf'], property['anyOf']].find(Array.isArray);
  const choices = Array.isArray(property['enum'])
    ? property['enum']
    : titled?.filter(isRecord).map((choice: Property) => choice['const']);
  if (!choices) return;
  if (values.some((value) => !choices.includes(value))) {
    throw invalid(
      path,
      `must be one of: ${choices.filter((choice) => typeof choice === 'string').join(', ')}.`,
    );
  }
}

function propertiesOf(form: InputForm): Map<string, Property> {
  const properties = isRecord(form['properties']) ? Object.entries(form['properties']) : [];
  return new Map(properties.map(([name, property]) => [name, isRecord(property) ? property : {}]));
}

function requiredOf(form: InputForm): string[] {
  const required = form['required'];
  return Array.isArray(required) ? required.filter((name) => typeof name === 'string') : [];
}

function isValue(value: unknown): value is InputContent[string] {
  if (Array.isArray(value)) return value.every((item) => typeof item === 'string');
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
