import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findCommand, parse } from '../src/command.ts';
import { commands } from '../src/commands.ts';
import { help, helpOfCommand, helpOfGroup, helpOfHost } from '../src/help.ts';
import { hostCommands } from '../src/host.ts';

test('every command has help: by --help and -h, also where arguments are missing', () => {
  for (const command of commands) {
    for (const flag of ['--help', '-h']) {
      const found = parse(commands, [...command.name.split(' '), flag]);
      assert.equal(found.command, command);
      assert.equal(found.values['help'], true);
    }
    const told = helpOfCommand(commands, command);
    assert.ok(told.startsWith(`berth ${command.name}`));
    assert.ok(told.includes(command.summary));
  }
});

test('every group of commands has help that names all of them', () => {
  const groups = new Set(
    commands.filter(({ name }) => name.includes(' ')).map(({ name }) => name.split(' ')[0]!),
  );
  assert.ok(groups.has('secrets'));
  for (const group of groups) {
    const below = commands.filter(({ name }) => name.startsWith(`${group} `));
    for (const argv of [[group], [group, '--help'], [group, '-h']]) {
      assert.equal(findCommand(commands, argv), undefined);
      const told = helpOfGroup(commands, argv);
      for (const { name, summary } of below)
        assert.ok(told?.includes(`berth ${name}`) && told.includes(summary));
    }
  }
});

test('a command of the host has help and is not run for it', () => {
  for (const [name, , summary] of hostCommands) {
    assert.ok(helpOfHost(commands, [...name.split(' '), '--help'])?.includes(summary));
    assert.equal(helpOfHost(commands, name.split(' ')), null);
  }
  assert.ok(help(commands).includes(hostCommands[0]![2]));
});

test('what is neither a command nor a group has no help', () => {
  assert.equal(helpOfGroup(commands, ['secretz', '--help']), null);
  assert.equal(helpOfGroup(commands, ['--help']), null);
  assert.throws(() => parse(commands, ['secrets', 'sett', '--help']), /unknown command "secrets sett"/);
  assert.equal(helpOfGroup(commands, ['secrets', 'sett', '--help']), null);
});
