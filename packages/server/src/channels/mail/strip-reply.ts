const lineChars = 400;
const maxLines = 20_000;

/** Whatever comes after such a line was quoted by the mail program (our own marker among them). */
const dividers = [
  /^-{2,}\s*(original message|ursprüngliche nachricht|message d'origine|mensaje original|messaggio originale|mensagem original|oorspronkelijk bericht|wiadomość oryginalna|исходное сообщение|元のメッセージ|原始邮件|원본 메시지)\s*-{2,}$/i,
  /^-{2,}\s*(forwarded message|weitergeleitete nachricht|message transféré)\s*-{2,}$/i,
  /^(##-|#{2,})? ?(please )?(type|write) your reply above this line/i,
  /^_{20,}$/,
];
/** Outlook's block of header lines: at least two of them, one after the other. */
const blockHead =
  /^\*?(from|von|de|da|van|od|от|差出人|发件人|보낸 사람|sent|gesendet|envoyé|enviado|inviato|verzonden|wysłano|отправлено|送信日時|发送时间|보낸 날짜|to|an|à|para|a|aan|do|кому|宛先|收件人|받는 사람|date|datum|fecha|data|subject|betreff|objet|asunto|oggetto|assunto|onderwerp|temat|тема|件名|主题|제목)\*?\s?[:：]\*?\s/i;
const mobile =
  /^(sent from my |von meinem .{1,40} gesendet|envoyé de mon |enviado desde mi |get outlook for )/i;

/**
 * The new text of a reply, without quotes below it and without its signature. A guess by lines, in time that grows with
 * the length alone; when it leaves nothing, the whole text is what was said. Interleaved answers keep what they answer.
 */
export function stripReply(text: string): string {
  const lines = text.split(/\r\n|\r|\n/, maxLines).map((line) => line.slice(0, lineChars).trim());
  const whole = text.split(/\r\n|\r|\n/, maxLines);
  let end = firstDivider(lines);
  end = trimQuotes(lines, end);
  end = trimSignature(lines, end);
  const kept = whole.slice(0, end).join('\n').trim();
  return kept === '' ? text.trim() : kept;
}

function firstDivider(lines: string[]): number {
  const found = lines.findIndex((line, index) => {
    if (line === '' || line.startsWith('>')) return false;
    if (dividers.some((pattern) => pattern.test(line))) return true;
    const next = lines[index + 1] ?? '';
    if (blockHead.test(line) && blockHead.test(next) && blockHead.test(lines[index + 2] ?? '')) return true;
    return isQuoteHead(lines, index) && !hasAnswerBelow(lines, index + headLines(lines, index));
  });
  return found === -1 ? lines.length : found;
}

/** `On …, somebody <address> wrote:`, in any language: looks like a date, looks like a person, ends with a colon. */
function isQuoteHead(lines: string[], index: number): boolean {
  return headLines(lines, index) > 0;
}

/** How many lines the head of a quote takes here: one, two when it is broken, none when there is none. */
function headLines(lines: string[], index: number): number {
  let joined = '';
  for (let count = 1; count <= 3; count += 1) {
    const line = lines[index + count - 1];
    if (line === undefined || line === '') return 0;
    joined = joined === '' ? line : `${joined} ${line}`;
    if (looksLikeHead(joined)) return count;
  }
  return 0;
}

function looksLikeHead(line: string): boolean {
  if (line.length < 12 || line.length > 300 || !/[:：]$/.test(line)) return false;
  const hasDate = /\b\d{1,4}([./-]\d{1,2}[./-]\d{1,4}|[年년])|\b\d{1,2}:\d{2}\b|\b(19|20)\d{2}\b/.test(line);
  const hasPerson = /[^\s<>@]{1,64}@[^\s<>@]{1,255}/.test(line);
  const hasVerb =
    /(wrote|schrieb|écrit|escribió|ha scritto|escreveu|schreef|napisał|написал|пише|yazdı|skrev|kirjoitti|写道|書きました|작성)/i.test(
      line,
    );
  return hasDate && (hasPerson || hasVerb);
}

/** Somebody who answers between the lines of a quote says something after its head. */
function hasAnswerBelow(lines: string[], from: number): boolean {
  let quoted = false;
  for (const line of lines.slice(from, from + 2_000)) {
    if (line === '') continue;
    if (line.startsWith('>')) quoted = true;
    else if (line === '--') return false;
    else if (quoted) return !mobile.test(line);
    else return false;
  }
  return false;
}

function trimQuotes(lines: string[], end: number): number {
  let last = end;
  while (last > 0 && (lines[last - 1] === '' || lines[last - 1]!.startsWith('>'))) last -= 1;
  // The head of the quote that was just taken away goes with it.
  for (const count of [3, 2, 1]) {
    if (last < end && last >= count && headLines(lines, last - count) === count) return last - count;
  }
  return last;
}

/** `-- ` begins a signature (RFC 3676, section 4.3). */
function trimSignature(lines: string[], end: number): number {
  const from = Math.max(0, end - 30);
  for (let index = end - 1; index >= from; index -= 1) {
    if (lines[index] === '--' || lines[index] === '—' || mobile.test(lines[index]!)) return index;
  }
  return end;
}
