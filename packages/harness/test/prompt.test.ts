import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readPrompt } from '../src/prompt.ts';
import { Transcript } from '../src/transcript.ts';
import { anthropicWire } from '../src/wire-anthropic.ts';
import { openaiChatWire } from '../src/wire-openai.ts';

const blocks = [
  { type: 'text', text: 'What is this?' },
  { type: 'image', data: 'iVBORw0K', mimeType: 'image/png' },
  { type: 'image', data: 'AAAA', mimeType: 'image/tiff', uri: 'berth:part/2/x.tiff' },
  { type: 'resource', resource: { uri: 'berth:part/3/a.txt', mimeType: 'text/plain', text: 'hi' } },
  { type: 'resource', resource: { uri: 'berth:part/4/a.bin', mimeType: 'application/x', blob: 'AAAA' } },
  { type: 'resource_link', name: 'x', uri: 'https://example.com/x' },
];

test('texts, data and links of a prompt become text, images stay images, what cannot be looked at is named', () => {
  const prompt = readPrompt(blocks);
  assert.deepEqual(prompt?.images, [{ mediaType: 'image/png', data: 'iVBORw0K' }]);
  assert.equal(
    prompt?.text,
    'What is this?\n\n' +
      '[A part of kind "image" (image/tiff berth:part/2/x.tiff) is left out: this agent reads text and looks at images.]\n\n' +
      '<resource uri="berth:part/3/a.txt">\nhi\n</resource>\n\n' +
      '[A part of kind "resource" (application/x berth:part/4/a.bin) is left out: this agent reads text and looks at images.]\n\n' +
      '[x](https://example.com/x)',
  );
  assert.equal(readPrompt('text'), null);
  assert.equal(readPrompt([null]), null);
});

test('each wire has its own form for an image; without one a message is as it was', () => {
  const images = [{ mediaType: 'image/png', data: 'iVBORw0K' }];
  const of = (wire: typeof anthropicWire, item: object) =>
    JSON.parse(wire.encode({ role: 'user', text: 'x', ...item })).content;
  const source = { type: 'base64', media_type: 'image/png', data: 'iVBORw0K' };
  const text = { type: 'text', text: 'x' };
  assert.deepEqual(of(anthropicWire, { images }), [{ type: 'image', source }, text]);
  assert.deepEqual(of(anthropicWire, { images, text: '' }), [{ type: 'image', source }]);
  assert.deepEqual(of(anthropicWire, { images: [] }), [text]);
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0K' } };
  assert.deepEqual(of(openaiChatWire, { images }), [text, image]);
  assert.deepEqual(of(openaiChatWire, { images, text: '' }), [image]);
  assert.equal(of(openaiChatWire, { images: [] }), 'x');
});

test('a large image does not make a conversation seem full', () => {
  const transcript = new Transcript(anthropicWire.encode);
  const images = [{ mediaType: 'image/png', data: 'A'.repeat(2_000_000) }];
  transcript.push({ role: 'user', text: 'x', images });
  assert.ok(transcript.chars > 1_000 && transcript.chars < 10_000, `${transcript.chars}`);
  assert.deepEqual(transcript.weights, [transcript.chars]);
  transcript.replaceAll([{ role: 'user', text: 'x' }]);
  assert.ok(transcript.chars < 100);
});
