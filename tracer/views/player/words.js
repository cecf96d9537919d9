// The player's own words, in English and Chinese. What a trace is about comes with the run.

import { filled, speak } from "./run.js";
import { visible } from "./dom.js";
import { isHidden } from "./state.js";

const EN = {
  player: "Replay of a run", tree: "Calls and spans", timeline: "Line of time", stop: "The stop", path: "Where it is",
  "one of them": "· here", "from start": "at {time}", forward: "forward {step}", "go inside": "go inside",
  strip: "Prompt and answer", guess: "Your guess", "guess it": "Guess", reveal: "Reveal", "what comes next": "What does the model say next? Type it, or pick one.",
  "guessed right": "Right: {guess} it is.", "guessed wrong": "Not {guess}: the model gave it {share}.", "guessed unknown": "Not {guess}: it is not among the model's best candidates.",
  image: "The image", tensor: "Its place in the file", fate: "What became of it", source: "The library's source", "call path": "Python call path, innermost first",
  cache: "KV cache", facts: "What is known", "in and out": "In and out", in: "goes in", out: "comes out", siblings: "Among its neighbours",
  row: "The row behind it", lesson: "Lesson: {stage}", candidates: "Candidates", effects: "What each processor did", "stop ids": "Ids that end the answer",
  raw: "model", after: "after the processors", rest: "all other tokens", chosen: "chosen", processor: "processor", removed: "removed", shift: "shift of the chosen", entropy: "entropy, nats",
  "stop rank": "rank {rank}", grid: "{t} × {h} × {w} = {patches} patches", placeholders: "Placeholders: {expected} expected, {found} found, {replaced} replaced by the encoder",
  neighbours: "{place} of {count}; the longest took {most}", "cache grew": "{before} → {after} tokens · {total}",
  "more rows": "… and {more} more rows", "left out": "The page was made without the details of this stop, to stay small.", "no answer": "Nothing could be read: {reason}",
  breakpoints: "Breakpoints", hits: "hits: {count}", "how to break": "None yet. Add one below, press b, or click left of a line.", "kind of breakpoint": "Kind of breakpoint", add: "Add", on: "On",
  remove: "Remove", "next hit": "Go to the next hit", "hit of": "{passed} / {count}", "any finding": "any finding",
  "break stage": "a stage begins", "break module": "a module", "break token": "token text", "break entropy": "entropy above", "break slower": "slower than", "break finding": "a finding", "break window": "cache crosses its window", "break fault": "a fault or error",
  "value stage": "stage", "value module": "layers.*.mlp", "value token": "text in the token", "value entropy": "nats, such as 1.5", "value slower": "250 ms", "value finding": "finding",
  "at stop": "here: {name}", "told stage": "stage {value}", "told module": "module {value}", "told token": "token with “{value}”", "told entropy": "entropy > {value}", "told slower": "slower than {value}", "told finding": "any finding", "told window": "cache crosses its window", "told fault": "a fault or error",
  stage: "stage", "mark findings": "finding", "mark audit": "check", "mark faults": "not seen", "mark moments": "moment",
  "notice hit": "Breakpoint: {name}", "notice end": "The run ends here.", "notice start": "The run begins here.", "notice top": "This is the outermost call.", "notice no hit": "No breakpoint that way.", "notice no breakpoints": "No breakpoint is set: b sets one here.",
  "notice no token": "No token that way.", "notice made": "Breakpoint set: {hits} stops.", "notice known breakpoint": "That breakpoint is there already.", "notice removed": "Breakpoint removed.", "notice no history": "Nothing to go back to.", "notice no fold": "Nothing is folded here.",
  "notice own hidden": "The recorder's own work is skipped.", "notice own shown": "The recorder's own work is shown.", "notice right": "Right!", "notice wrong": "Not this time.",
  of: "{at} / {count}", "is static": "static page", search: "Stage, token, module, finding …", jump: "Jump to", "nothing found": "Nothing has that name.",
  help: "Keys", close: "Close", teaching: "guessing", "axis time": "time", "axis stops": "stops", "axis hint": "What the line measures",
  "key step": "step", "key over": "step over", "key out": "step out", "key back": "step back", "key undo": "where I was before", "key continue": "to the next breakpoint", "key continue back": "to the breakpoint before", "key next token": "next token", "key previous token": "token before", "key jump": "jump to a stage, token or module",
  "key home": "first stop", "key end": "last stop", "key line": "line above, line below", "key parent": "to the caller", "key break": "breakpoint here, on or off", "key fold": "open or close this", "key fold around": "open or close the fold around this", "key reveal": "reveal the token", "key teach": "guess the tokens", "key large": "large type",
  "key language": "中文", "key dark": "light or dark", "key own": "show or hide the recorder's own work", "key axis": "line of time or of stops", "key zoom": "zoom in, out, all", "key help": "this sheet", "key leave": "close, or leave a field",
  "group walk": "Walk", "group run": "Run", "group look": "Look", "group teach": "Teach",
  "origin user": "your code", "origin transformers": "transformers", "origin accelerate": "accelerate", "origin torch": "torch", "origin python": "Python", "origin tracer": "the recorder", "origin other": "another library",
};

const ZH = {
  player: "运行回放", tree: "调用与时段", timeline: "时间线", stop: "当前停点", path: "所在位置",
  "one of them": "· 在此", "from start": "起于 {time}", forward: "第 {step} 次前向", "go inside": "进入内部",
  strip: "提示与回答", guess: "你的猜测", "guess it": "猜", reveal: "揭晓", "what comes next": "模型接下来会说什么？输入文字，或选一个。",
  "guessed right": "对了：正是 {guess}。", "guessed wrong": "不是 {guess}：模型给它的概率是 {share}。", "guessed unknown": "不是 {guess}：它不在模型的最佳候选之中。",
  image: "图像", tensor: "在文件中的位置", fate: "去向", source: "库源代码", "call path": "Python 调用路径，最内层在前",
  cache: "键值缓存", facts: "已知事实", "in and out": "输入与输出", in: "输入", out: "输出", siblings: "与同类相比",
  row: "背后的数据行", lesson: "小课：{stage}", candidates: "候选词元", effects: "各处理器的作用", "stop ids": "结束回答的 id",
  raw: "模型原值", after: "处理器之后", rest: "其余所有词元", chosen: "被选中", processor: "处理器", removed: "移除", shift: "对被选者的改变", entropy: "熵（nat）",
  "stop rank": "排名 {rank}", grid: "{t} × {h} × {w} = {patches} 个图块", placeholders: "占位符：应有 {expected}，找到 {found}，被编码器替换 {replaced}",
  neighbours: "第 {place} 个，共 {count} 个；最长 {most}", "cache grew": "{before} → {after} 个词元 · {total}",
  "more rows": "……还有 {more} 行", "left out": "为了保持小巧，页面没有带上这一停点的细节。", "no answer": "读取失败：{reason}",
  breakpoints: "断点", hits: "命中：{count}", "how to break": "还没有断点。在下面添加，按 b，或点击行的左侧。", "kind of breakpoint": "断点种类", add: "添加", on: "启用",
  remove: "删除", "next hit": "去下一处命中", "hit of": "{passed} / {count}", "any finding": "任何发现",
  "break stage": "阶段开始", "break module": "模块", "break token": "词元文字", "break entropy": "熵高于", "break slower": "慢于", "break finding": "诊断发现", "break window": "缓存越过窗口", "break fault": "故障或错误",
  "value stage": "阶段", "value module": "layers.*.mlp", "value token": "词元中的文字", "value entropy": "nat，如 1.5", "value slower": "250 ms", "value finding": "发现",
  "at stop": "此处：{name}", "told stage": "阶段 {value}", "told module": "模块 {value}", "told token": "词元含“{value}”", "told entropy": "熵 > {value}", "told slower": "慢于 {value}", "told finding": "任何发现", "told window": "缓存越过窗口", "told fault": "故障或错误",
  stage: "阶段", "mark findings": "发现", "mark audit": "检查", "mark faults": "未观察到", "mark moments": "时刻",
  "notice hit": "断点：{name}", "notice end": "运行到此结束。", "notice start": "运行从此开始。", "notice top": "已是最外层调用。", "notice no hit": "这个方向没有断点。", "notice no breakpoints": "没有断点：按 b 在此设置。",
  "notice no token": "这个方向没有词元。", "notice made": "已设断点：{hits} 处。", "notice known breakpoint": "这个断点已经有了。", "notice removed": "断点已删除。", "notice no history": "没有更早的位置。", "notice no fold": "这里没有折叠。",
  "notice own hidden": "略过记录器自身的工作。", "notice own shown": "显示记录器自身的工作。", "notice right": "对了！", "notice wrong": "这次不对。",
  of: "{at} / {count}", "is static": "静态页面", search: "阶段、词元、模块、发现……", jump: "跳到", "nothing found": "没有这个名字。",
  help: "按键", close: "关闭", teaching: "猜词", "axis time": "时间", "axis stops": "停点", "axis hint": "横轴的含义",
  "key step": "单步进入", "key over": "单步越过", "key out": "跳出", "key back": "后退一步", "key undo": "回到先前位置", "key continue": "到下一个断点", "key continue back": "到上一个断点", "key next token": "下一个词元", "key previous token": "上一个词元", "key jump": "跳到阶段、词元或模块",
  "key home": "第一个停点", "key end": "最后一个停点", "key line": "上一行、下一行", "key parent": "到调用者", "key break": "在此设断点或取消", "key fold": "展开或收起", "key fold around": "展开或收起所在的折叠", "key reveal": "揭晓词元", "key teach": "猜词模式", "key large": "大字",
  "key language": "English", "key dark": "浅色或深色", "key own": "显示或隐藏记录器自身的工作", "key axis": "时间轴或停点轴", "key zoom": "放大、缩小、全部", "key help": "本表", "key leave": "关闭，或离开输入框",
  "group walk": "行走", "group run": "运行", "group look": "查看", "group teach": "教学",
  "origin user": "你的代码", "origin transformers": "transformers", "origin accelerate": "accelerate", "origin torch": "torch", "origin python": "Python", "origin tracer": "记录器", "origin other": "其他库",
};

export const WORDS = { en: EN, zh: ZH };

export function makeWords(run, state) {
  const own = WORDS[state.language] ?? EN;
  return {
    ui: (key, values = {}) => filled(own[key] ?? key, values),
    run: speak(run, state.language),
    stopName: (at) => {
      if (!run.isToken(at)) return run.nameOf(at);
      return isHidden(run, state, at) ? "?" : visible(run.nameOf(at));
    },
  };
}
