// Findings and waits as JSON, for the reader.
#include <dlfcn.h>

#include "assumptions.hpp"
#include "collected.hpp"

namespace kb::emu {

namespace {

constexpr const char* kNames[] = {
    "hang",
    "timeout",
    "race",
    "early-read",
    "overwrite",
    "proxy-fence",
    "tensor-map-proxy",
    "arrival-count",
    "transaction-count",
    "phase",
    "barrier-state",
    "named-barrier",
    "divergence",
    "tmem-allocation",
    "tmem-bounds",
    "descriptor",
    "alignment",
    "out-of-bounds",
    "exit",
    "crash",
    "order",
    "unwritten",
    "not-reset",
};

}  // namespace

const char* class_name(Class kind) {
  return kNames[static_cast<size_t>(kind)];
}

void put_string(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else {
      out += c;
    }
  }
  out += '"';
}

// Library and offset: the reader has the library's symbols, also after the process has ended.
void put_pc(std::string& out, Pc pc) {
  Dl_info info;
  // A return address belongs to the instruction before it.
  const auto* at = static_cast<const char*>(pc) - 1;
  if (pc == nullptr || dladdr(at, &info) == 0 || info.dli_fname == nullptr) {
    out += "null";
    return;
  }
  out += "{\"module\":";
  put_string(out, info.dli_fname);
  out += ",\"offset\":" + std::to_string(at - static_cast<const char*>(info.dli_fbase)) + "}";
}

namespace {

void put_cta(std::string& out, const CtaIndex& cta) {
  out += '[';
  out += std::to_string(cta.x);
  out += ',';
  out += std::to_string(cta.y);
  out += ',';
  out += std::to_string(cta.z);
  out += ']';
}

// None unless each repeat was a race of a load with a store of one CTA.
void put_readers(std::string& out, const std::set<int32_t>& readers) {
  out += '[';
  if (*readers.begin() >= 0) {
    for (const int32_t each : readers) {
      if (out.back() != '[') out += ',';
      out += std::to_string(each);
    }
  }
  out += ']';
}

// The fields are those that kernelbench reads; offsets of -1 mean none.
void put_finding(std::string& out, const Found& found) {
  const Finding& finding = found.finding;
  out += "{\"class\":";
  put_string(out, class_name(finding.kind));
  out += ",\"text\":";
  put_string(out, finding.text);
  out += ",\"pc\":";
  put_pc(out, finding.pc);
  out += ",\"other_pc\":";
  put_pc(out, finding.other_pc);
  out += ",\"count\":" + std::to_string(found.count) + ",\"cta\":";
  put_cta(out, found.where.cta);
  out += ",\"rank\":" + std::to_string(found.where.rank) +
         ",\"thread\":" + std::to_string(found.where.thread) +
         ",\"shared_offset\":" + std::to_string(finding.shared_offset) +
         ",\"tmem_column\":" + std::to_string(finding.tmem_column) +
         ",\"other_thread\":" + std::to_string(finding.other_thread) +
         ",\"one_warp\":" + (finding.one_warp ? "true" : "false") +
         ",\"formal\":" + (finding.formal ? "true" : "false") +
         ",\"same_value\":" + (finding.same_value ? "true" : "false") +
         ",\"follows\":" + (finding.follows ? "true" : "false") +
         ",\"apart\":" + std::to_string(finding.apart) +
         ",\"abroad\":" + (finding.abroad ? "true" : "false") + ",\"readers\":";
  put_readers(out, found.readers);
  out += ",\"buffer\":";
  put_string(out, finding.buffer);
  out += ",\"shared_type\":";
  put_string(out, found.where.shared_type ? found.where.shared_type : "");
  out += "}";
}

void put_findings(std::string& out, const std::vector<Found>& findings) {
  for (size_t i = 0; i < findings.size(); ++i) {
    if (i > 0) out += ",";
    put_finding(out, findings[i]);
  }
}

const char* wait_name(Wait::Kind kind) {
  switch (kind) {
    case Wait::Kind::kMbarrier:
      return "mbarrier";
    case Wait::Kind::kNamedBarrier:
      return "named-barrier";
    case Wait::Kind::kWarp:
      return "warp";
    case Wait::Kind::kCluster:
      return "cluster";
    case Wait::Kind::kBulkGroup:
      return "bulk-group";
    case Wait::Kind::kTmemAlloc:
      return "tmem-alloc";
    case Wait::Kind::kTmemLoad:
      return "tmem-load";
    case Wait::Kind::kGlobal:
      return "global";
    case Wait::Kind::kCopies:
      return "cp.async";
    case Wait::Kind::kWgmma:
      return "wgmma";
    case Wait::Kind::kShared:
      return "shared";
    case Wait::Kind::kRegisters:
      return "registers";
    default:
      return "none";
  }
}

// Beside the wait itself, what its barrier still lacks.
void put_wait(std::string& out, const WaitRecord& record) {
  out += "{\"cta\":";
  put_cta(out, record.cta);
  out += ",\"rank\":" + std::to_string(record.rank) + ",\"warp\":" + std::to_string(record.warp) +
         ",\"lanes\":" + std::to_string(record.lanes) + ",\"kind\":";
  put_string(out, wait_name(record.wait.kind));
  out += ",\"pc\":";
  put_pc(out, record.wait.pc);
  out += ",\"object\":" + std::to_string(record.wait.object) +
         ",\"parity\":" + std::to_string(record.wait.value);
  if (record.has_barrier) {
    out += ",\"phase\":" + std::to_string(record.phase) + ",\"tx\":" + std::to_string(record.tx) +
           ",\"init_pc\":";
    put_pc(out, record.init_pc);
  }
  out += ",\"arrive_pc\":";
  put_pc(out, record.arrive_pc);
  if (record.expected != 0) {
    out += ",\"pending\":" + std::to_string(record.pending) +
           ",\"expected\":" + std::to_string(record.expected) +
           ",\"before\":" + std::to_string(record.before) +
           ",\"skips\":" + (record.skips ? "true" : "false");
  }
  out += ",\"word\":";
  put_string(out, record.word);
  out += ",\"shared_type\":";
  put_string(out, record.shared_type ? record.shared_type : "");
  out += std::string(",\"triggered\":") + (record.triggered ? "true" : "false") + "}";
}

}  // namespace

std::string collected_json(const Collected& collected) {
  std::string out = "{\"findings\":[";
  put_findings(out, collected.findings);
  out += "],\"causes\":[";
  put_findings(out, collected.causes);
  out += "],\"notes\":[";
  put_findings(out, collected.notes);
  out += "],\"waits\":[";
  for (size_t i = 0; i < collected.waits.size(); ++i) {
    if (i > 0) out += ",";
    put_wait(out, collected.waits[i]);
  }
  out += "],\"ctas_at_words\":" + std::to_string(collected.ctas_at_words) + ",\"memory\":[";
  for (const MemoryRecord& each : collected.memory) {
    if (out.back() != '[') out += ',';
    out += "{\"pc\":";
    put_pc(out, each.pc);
    out += ",\"shared_type\":";
    put_string(out, each.shared_type);
    out += ",\"shared_bytes\":" + std::to_string(each.shared_bytes) +
           ",\"tmem_columns\":" + std::to_string(each.columns) + "}";
  }
  out += "],\"dropped\":" + std::to_string(collected.dropped) +
         ",\"assumptions\":" + assumptions_json();
  return out;
}

}  // namespace kb::emu
