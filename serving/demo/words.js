// Joins subwords to words, and adds up their attention.

const SPACE = "▁"; // SentencePiece's sign for a space
const BYTE = /^<0x([0-9A-F]{2})>$/;
const PUNCTUATION = /^(?!['’-])[\p{P}\p{S}]+$/u; // apostrophe and hyphen stay inside of words
const END = "</s>";

/** Words made of subwords: [{text, pieces: [index, ...], end}], in order. */
export function words(pieces, merge) {
  const found = [];
  pieces.forEach((piece, index) => {
    const last = found.at(-1);
    const starts = !merge || !last || last.end || piece === END || piece.startsWith(SPACE)
      || isPunctuation(piece) !== isPunctuation(pieces[last.pieces.at(-1)]);
    const continuesBytes = BYTE.test(piece) && last && BYTE.test(pieces[last.pieces.at(-1)]);
    if (starts && !continuesBytes) {
      found.push({ pieces: [index], end: piece === END });
    } else {
      last.pieces.push(index);
    }
  });
  for (const word of found) {
    word.text = word.end ? "end" : spelled(word.pieces.map((index) => pieces[index]));
  }
  return found;
}

function isPunctuation(piece) {
  return PUNCTUATION.test(piece.replaceAll(SPACE, ""));
}

/** The text of some subwords; bytes are decoded to characters. */
function spelled(pieces) {
  const encoder = new TextEncoder();
  const bytes = pieces.flatMap((piece) => {
    const byte = BYTE.exec(piece);
    return byte ? [parseInt(byte[1], 16)] : [...encoder.encode(piece.replaceAll(SPACE, " "))];
  });
  return new TextDecoder().decode(new Uint8Array(bytes)).trim();
}

/** Attention between words [target][source]: what the pieces of a word got is added up, what they
 * gave is averaged, so that each row still sums to 1. */
export function merged(weights, sources, targets) {
  return targets.map((target) => sources.map((source) => {
    let sum = 0;
    for (const t of target.pieces) for (const s of source.pieces) sum += weights[t][s];
    return sum / target.pieces.length;
  }));
}

/** The place of each word in a text: [start, end], or null if it is not found. */
export function places(found, text) {
  let from = 0;
  return found.map((word) => {
    const start = word.end || !word.text ? -1 : text.indexOf(word.text, from);
    if (start < 0) return null;
    from = start + word.text.length;
    return [start, from];
  });
}

/** The words of `text` that are not in the longest common subsequence with `other`. */
export function differences(text, other) {
  const [a, b] = [text.split(/(?<=\s)/), other.split(/(?<=\s)/)];
  const same = (i, j) => a[i].trim() === b[j].trim();
  const length = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i][j] = same(i, j) ? 1 + length[i + 1][j + 1]
        : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const marked = [];
  for (let i = 0, j = 0; i < a.length; i++) {
    while (j < b.length && !same(i, j) && length[i][j + 1] === length[i][j]) j++;
    const common = j < b.length && same(i, j);
    marked.push({ text: a[i], differs: !common });
    if (common) j++;
  }
  return marked;
}
