/** As much of JSON Schema 2020-12 as openapi.json uses; any other keyword throws, so that none is passed over. */
export type JsonSchema = Record<string, unknown>;

type Check = (limit: never, value: unknown, at: string, schema: JsonSchema) => string[];

const typeOf = (value: unknown): string => {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value;
};

const formats: Record<string, RegExp> = {
  uuid: /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  // Stricter than RFC 3339: the contract promises UTC with milliseconds and Z.
  date: /^\d{4}-\d\d-\d\d$/,
  'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
};

/** A checker of values against schemas of one document; it gives one line for each thing that is wrong. */
export function jsonSchemaChecker(schemas: Record<string, JsonSchema>) {
  const text =
    (check: (value: string) => string | null): Check =>
    (_, value, at) => {
      const problem = typeof value === 'string' ? check(value) : null;
      return problem === null ? [] : [`${at}: ${problem}`];
    };
  const keywords: Record<string, Check> = {
    description: () => [],
    default: () => [],
    $ref: (ref: string, value, at) => problems(schemas[ref.split('/').at(-1)!]!, value, at),
    type: (type: string | string[], value, at) => {
      const allowed = [type].flat();
      const found = typeOf(value);
      const fits =
        allowed.includes(found) ||
        (found === 'number' && allowed.includes('integer') && Number.isInteger(value));
      return fits ? [] : [`${at}: is ${found}, not ${allowed.join(' or ')}`];
    },
    enum: (values: unknown[], value, at) =>
      values.includes(value) ? [] : [`${at}: is none of ${values.join(', ')}`],
    anyOf: (options: JsonSchema[], value, at) =>
      options.some((option) => problems(option, value, at).length === 0) ? [] : [`${at}: fits no option`],
    properties: (properties: Record<string, JsonSchema>, value, at) =>
      typeOf(value) === 'object'
        ? Object.entries(properties).flatMap(([name, schema]) =>
            Object.hasOwn(value as object, name)
              ? problems(schema, (value as Record<string, unknown>)[name], `${at}.${name}`)
              : [],
          )
        : [],
    required: (names: string[], value, at) =>
      typeOf(value) === 'object'
        ? names
            .filter((name) => !Object.hasOwn(value as object, name))
            .map((name) => `${at}.${name}: missing`)
        : [],
    items: (schema: JsonSchema, value, at) =>
      Array.isArray(value) ? value.flatMap((item, index) => problems(schema, item, `${at}[${index}]`)) : [],
    additionalProperties: (rule: boolean | JsonSchema, value, at, schema) => {
      if (typeOf(value) !== 'object') return [];
      const known = Object.keys((schema['properties'] as object | undefined) ?? {});
      const extra = Object.entries(value as object).filter(([name]) => !known.includes(name));
      if (rule === false) return extra.map(([name]) => `${at}.${name}: not known`);
      return rule === true ? [] : extra.flatMap(([name, item]) => problems(rule, item, `${at}.${name}`));
    },
    propertyNames: (schema: JsonSchema, value, at) =>
      typeOf(value) === 'object'
        ? Object.keys(value as object).flatMap((name) => problems(schema, name, `${at}.${name}`))
        : [],
    format: (name: string, value, at) => {
      const pattern = formats[name];
      if (!pattern) throw new Error(`The format ${name} is not known here.`);
      return text((value) => (pattern.test(value) ? null : `is no ${name}`))(name as never, value, at, {});
    },
    pattern: (source: string, value, at) =>
      text((value) => (new RegExp(source, 'u').test(value) ? null : `does not match ${source}`))(
        source as never,
        value,
        at,
        {},
      ),
    minLength: (min: number, value, at) =>
      text((value) => ([...value].length < min ? 'is too short' : null))(min as never, value, at, {}),
    maxLength: (max: number, value, at) =>
      text((value) => ([...value].length > max ? 'is too long' : null))(max as never, value, at, {}),
    minimum: (min: number, value, at) =>
      typeof value === 'number' && value < min ? [`${at}: is too small`] : [],
    maximum: (max: number, value, at) =>
      typeof value === 'number' && value > max ? [`${at}: is too large`] : [],
    maxItems: (max: number, value, at) =>
      Array.isArray(value) && value.length > max ? [`${at}: has too many entries`] : [],
  };

  function problems(schema: JsonSchema, value: unknown, at = '$'): string[] {
    return Object.entries(schema).flatMap(([keyword, limit]) => {
      const check = keywords[keyword];
      if (!check) throw new Error(`The keyword ${keyword} is not known here; add it.`);
      return check(limit as never, value, at, schema);
    });
  }
  return problems;
}
