/** Classic BPF as seccomp takes it (Linux, Documentation/userspace-api/seccomp_filter.rst; uapi/linux/bpf_common.h). */
const LOAD_WORD_ABSOLUTE = 0x20;
const AND = 0x54;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_GREATER = 0x25;
const JUMP_IF_AT_LEAST = 0x35;
const JUMP_IF_BIT = 0x45;
const RETURN = 0x06;

/** Where a jump goes: the next instruction, or the one that carries the label. */
export type Target = 'next' | (string & {});

export type Instruction =
  | { op: 'load'; offset: number }
  | { op: 'and'; value: number }
  | { op: 'equal' | 'greater' | 'atLeast' | 'anyBit'; value: number; yes: Target; no: Target }
  | { op: 'return'; value: number };

export type Line = Instruction | { label: string };

const jumpCodes = {
  equal: JUMP_IF_EQUAL,
  greater: JUMP_IF_GREATER,
  atLeast: JUMP_IF_AT_LEAST,
  anyBit: JUMP_IF_BIT,
} as const;

/** Turns lines into `struct sock_filter[]`, 8 bytes each, little-endian. Throws on a jump that eight bits cannot hold. */
export function assemble(lines: Line[]): Buffer {
  const positions = new Map<string, number>();
  const program: Instruction[] = [];
  for (const line of lines) {
    if ('label' in line) positions.set(line.label, program.length);
    else program.push(line);
  }
  const bytes = Buffer.alloc(program.length * 8);
  for (const [index, instruction] of program.entries()) write(bytes, index, instruction, positions);
  return bytes;
}

function write(bytes: Buffer, index: number, instruction: Instruction, positions: Map<string, number>): void {
  const at = index * 8;
  switch (instruction.op) {
    case 'load':
      bytes.writeUInt16LE(LOAD_WORD_ABSOLUTE, at);
      bytes.writeUInt32LE(instruction.offset, at + 4);
      return;
    case 'and':
      bytes.writeUInt16LE(AND, at);
      bytes.writeUInt32LE(instruction.value, at + 4);
      return;
    case 'return':
      bytes.writeUInt16LE(RETURN, at);
      bytes.writeUInt32LE(instruction.value, at + 4);
      return;
    default:
      bytes.writeUInt16LE(jumpCodes[instruction.op], at);
      bytes.writeUInt8(distance(index, instruction.yes, positions), at + 2);
      bytes.writeUInt8(distance(index, instruction.no, positions), at + 3);
      bytes.writeUInt32LE(instruction.value, at + 4);
  }
}

function distance(from: number, target: Target, positions: Map<string, number>): number {
  if (target === 'next') return 0;
  const to = positions.get(target);
  if (to === undefined) throw new Error(`The filter jumps to ${target}, which is nowhere.`);
  const steps = to - from - 1;
  if (steps < 0 || steps > 255)
    throw new Error(`The jump to ${target} is ${steps} instructions long; 0 to 255 can be written.`);
  return steps;
}
