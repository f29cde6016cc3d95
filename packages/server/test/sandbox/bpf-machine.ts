/** What a filter is asked about: `struct seccomp_data` (uapi/linux/seccomp.h) without the instruction pointer. */
export interface SyscallQuestion {
  arch: number;
  number: number;
  args: (number | bigint)[];
}

/** Runs a seccomp program as the kernel would, for the instructions that our compiler writes; returns its verdict. */
export function runFilter(program: Buffer, question: SyscallQuestion): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(question.number >>> 0, 0);
  data.writeUInt32LE(question.arch >>> 0, 4);
  for (const [index, value] of question.args.entries()) {
    data.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)), 16 + 8 * index);
  }
  let accumulator = 0;
  for (let at = 0, steps = 0; steps < 4096; steps++) {
    const code = program.readUInt16LE(at * 8);
    const yes = program.readUInt8(at * 8 + 2);
    const no = program.readUInt8(at * 8 + 3);
    const value = program.readUInt32LE(at * 8 + 4);
    const jump = (condition: boolean): void => void (at += 1 + (condition ? yes : no));
    if (code === 0x06) return value;
    if (code === 0x20) [accumulator, at] = [data.readUInt32LE(value), at + 1];
    else if (code === 0x54) [accumulator, at] = [(accumulator & value) >>> 0, at + 1];
    else if (code === 0x15) jump(accumulator === value);
    else if (code === 0x25) jump(accumulator > value);
    else if (code === 0x35) jump(accumulator >= value);
    else if (code === 0x45) jump((accumulator & value) !== 0);
    else throw new Error(`The instruction ${code.toString(16)} at ${at} is unknown.`);
  }
  throw new Error('The program does not end.');
}
