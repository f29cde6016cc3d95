/**
 * What the first process of a blank sandbox reads from its standard input: a line with the number of bytes after it and the
 * number of arguments, then the arguments and the variables (`NAME=value`), separated by NUL. The length tells what is whole
 * from what was cut off.
 */
export function launchData(command: readonly string[], env: Readonly<Record<string, string>>): Buffer {
  const fields = [...command, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
  const body = Buffer.from(fields.join('\0'));
  return Buffer.concat([Buffer.from(`${body.length} ${command.length}\n`), body]);
}
