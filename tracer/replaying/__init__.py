"""A trace as a debugger walks it: its stops in order, and everything that is known at each.

Reads a `Trace` and gives plain data for the player's page script; knows no widget, no page and no
model. `Replay` is the door: `header` and `columns` open a player, `detail(stop)` and
`shared(room, key)` tell about the stop that it stands on.

The contract with the script (`views/player/`), in the widget and in the static page alike.

`header` is JSON:

    version      1
    count        N, the number of stops, which are numbered from 0 in the order of the walk: a stop
                 comes before all that happened inside it, siblings by start
    columns      name -> {type, offset, length}: typed columns in one little-endian buffer; type is
                 an element type (uint8, uint16, int32, float32, float64), offset counts bytes and
                 is a multiple of 8, length counts elements
    kinds        what `kind` points into: call span tensor module step token image message fault
    tables       the table behind each kind, in the same order
    stages       what `stage` points into
    statuses     what `status` points into
    names        what `name` and `fold_name` point into
    threads      what `thread` points into; of a run of ranks with the rank in front
    title        what the trace is of, data
    facts        [key, text] pairs about the whole run; a key is one of words.facts
    ended        how the recording ended: complete, interrupted, ...
    marks        [{group, key, stop, title: {en, zh}, text: {en, zh}}] by stop; group is one of
                 moments, faults, audit, findings; key names the moment, target, check or rule. In
                 the widget only moments and faults: the others take longer and are asked for
    notes        [{key, values}]: what this player can't show, a phrase of words.phrases
    provenance   table -> {column: derived | estimated}; all others were measured
    language     the language to begin with
    words        language -> {phrases: {key: text with {braces}}, facts: {key: label},
                 kinds: {name: title}, stages: {name: {title, text, lesson}},
                 tables: {name: {title, text}}, columns: {table: {column: [label, meaning]}},
                 provenance: {name: word}, units are inside the values}

Columns, of length N unless said otherwise:

    parent int32 (-1 for none), depth, last int32 (the last stop inside; a leaf's own number),
    kind, stage, status, name, thread, start float64 and duration float32 (milliseconds from the
    beginning of the trace; NaN where it never ended), step int32 (number of the forward that it
    belongs to, -1 for none), call int32 (stop of the nearest call, itself for a call, -1), row
    int32 (of its table, as stored), fold int32 (its fold, -1 for none)
    fold_first, fold_last (the last stop inside the last sibling), fold_count, fold_name: one entry
    a fold, which is a run of siblings that differ only by a number (layers.0, layers.1, ...);
    fold_name points at a name with a star for the number
    token_stop, token_entropy, token_probability, token_row: one entry a token

`detail(stop)` is JSON. Every text is data, to be shown as text and nothing else; parts that a stop
has nothing for are absent.

    stop      its number
    title     its name in full
    facts     [[key, text, provenance]]: the telling numbers with units; key is of words.facts. Here
              and in the cells and texts below a boolean stands for itself, and words that are
              recorded in English are {en, zh}
    row       {table, cells: [[column, text]]}: every cell that is not missing
    source    {key, line, reached: [[line, stop]]}: the library function that ran, a key of the
              room `sources`; line is its own first line, reached are lines that led to stops inside
    stack     key of the room `stacks`; line numbers in it are where each frame stood
    code_of   of a stop that no function of its own was seen for (a token, a message): the nearest
              one around it, whose source and stack these are
    inputs, outputs   [[name, text]]: what went in and came out
    tensor    {file, offset, size, file_size, header (numbers in bytes), label: [..three texts..],
              dtype, shape, fate, because}
    token     {strip, upto, candidates: [{rank, text, id, raw, probability, chosen}], rest: [raw,
              probability], effects: [[class_name, removed, delta, before, after]], stops: [[text or
              id, rank, probability]]}; strip is a key of the room `strips`, upto the number of its
              chips that were there before this token came
    strip     {strip, upto, row | sequence, others: [the same of further rows]} for a stop that is
              no token but has sequences: an encoding, a call, a forward; sequence is the number of
              one that was returned, where beams change their rows
    image     {chain: [[key, width, height]], grid: [t, h, w], merge, tokens: [expected, found,
              replaced], limits, first_position}; key is of words.facts
    cache     key of the room `caches`: the cache after the forward that the stop belongs to
    tables    [{table, columns, rows, more}]: facts that this event established, cells as text;
              more is the number of rows left out

Rooms of `shared(room, key)`:

    sources   {file, function, first_line, lines: [text]}
    stacks    [{file, line, function, origin, source}] from the outermost in; origin is one of user,
              transformers, accelerate, torch, python, tracer, other; source a key of `sources` or
              null
    strips    {chips: [[text, kind, origin, probability, many, id]], prompt: how many of them are
              the prompt, made: the row of `choices` of each other one (none where a call has none),
              redacted: whether texts and ids were taken out, unnamed: whether no tokenizer told a
              text}; kind as in the table tokens, or generated; many is how many placeholders or
              pads a chip stands for; text or id null: unknown
    caches    {layers: [{layer, part, class_name, tokens, held, capacity, bytes, size}], total,
              tokens_before, tokens_after}; size and total are texts, capacity null where it grows

The neighbours of a module (the same one in the other layers) need no detail: they lie inside the
fold of the nearest fold above, at one depth, with names that are equal but for the number.

In the widget `header` is a trait (JSON text), `columns` a trait (bytes), `kept` one that the script
writes (where the reader is, breakpoints, looks) and reads when it begins. The script sends
{kind: "detail", stop}, {kind: "shared", room, key} and {kind: "marks"}, and gets {kind: "detail",
stop, detail}, {kind: "shared", room, key, value} and {kind: "marks", marks, notes} (all of them).
In the static page all of it lies in one element `<script type="application/json"
id="tracer-replay">`:

    {header, columns, details: {block, blocks}, shared}

`columns`, `header.words` (as JSON text), `shared` (room -> key -> value, as JSON text) and each of
`blocks` (JSON text: a list of `block` details, null for one that was left out; the block itself is
null where all were) are base64 of zlib-deflated bytes.
"""
