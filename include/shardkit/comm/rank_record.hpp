// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/json_reader.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::recorder {

/// What a rank's flight recorder held at one time: its last calls, and what the rank did then.
struct RankRecord {
    std::string engine;
    std::size_t rank = 0;
    std::size_t ranks = 0;            ///< of the world
    std::string why;                  ///< the reason for which it was taken; of a rank that has ended, how
    bool ended = false;               ///< whether the rank's function had returned or thrown
    std::uint64_t taken = 0;          ///< nanoseconds since 1970
    std::vector<RecentCall> calls{};  ///< the oldest first
    std::uint64_t run = 0;            ///< the same for the ranks of one run, and for no other run; 0: unknown
    /// The texts to which calls that were read from a file refer.
    std::shared_ptr<const void> files{};
};

}  // namespace shardkit::recorder

namespace shardkit::detail {

inline constexpr std::string_view record_format = "shardkit flight record 1";

/// Returns a text that is UTF-8, with a question mark for each byte of another one.
inline std::string json_text(std::string_view text) {
    std::string copy(text);
    if (!is_utf8(text)) {
        for (char& c : copy) { c = static_cast<unsigned char>(c) < 0x80 ? c : '?'; }
    }
    return json_string(copy);
}

/// Returns the value of an enumeration by its name.
template <class Enum, std::size_t count>
Enum named(const JsonReader& json, std::string_view text) {
    for (std::size_t i = 0; i < count; ++i) {
        if (name(static_cast<Enum>(i)) == text) { return static_cast<Enum>(i); }
    }
    json.fail("a name that is not known: ", text);
}

}  // namespace shardkit::detail

namespace shardkit::recorder {

/// Returns a record as JSON, with a line for each call.
inline std::string to_json(const RankRecord& record) {
    using detail::append;
    using detail::concat;
    using detail::json_text;
    std::string groups;
    detail::List<std::pair<const void*, std::string>> known;
    std::string calls;
    for (const RecentCall& call : record.calls) {
        std::size_t group = 0;
        while (group < known.size() &&
               (known[group].first != call.members.get() || known[group].second != call.axes)) {
            ++group;
        }
        if (group == known.size()) {
            known.emplace_back(call.members.get(), call.axes);
            append(groups, group == 0 ? "\n" : ",\n", "    {\"axes\": ", json_text(call.axes), ", \"ranks\": [");
            for (std::size_t i = 0; call.members && i < call.members->size(); ++i) {
                append(groups, i == 0 ? "" : ", ", (*call.members)[i]);
            }
            groups += "]}";
        }
        const Signature& s = call.signature;
        append(calls, calls.empty() ? "\n" : ",\n", "    {\"number\": ", call.number, ", \"group\": ", group,
               ", \"sequence\": ", call.sequence, ", \"step\": ", call.step, ", \"verb\": \"", name(s.verb),
               "\", \"in\": \"", name(s.in), "\", \"out\": \"", name(s.out), "\", \"op\": \"", name(s.op),
               "\", \"count\": ", s.count, ", \"argument\": ", s.argument, ", \"bytes\": ", call.payload,
               ", \"for\": ", json_text(call.subject), ", \"file\": ", json_text(call.where.file),
               ", \"line\": ", call.where.line, ", \"given\": ", call.given, ", \"begun\": ", call.begun,
               ", \"done\": ", call.done, ", \"failed\": ", call.failed ? 1 : 0, "}");
    }
    return concat("{\n  \"format\": \"", detail::record_format, "\",\n  \"engine\": ", json_text(record.engine),
                  ",\n  \"rank\": ", record.rank, ",\n  \"ranks\": ", record.ranks,
                  ",\n  \"why\": ", json_text(record.why), ",\n  \"ended\": ", record.ended ? 1 : 0,
                  ",\n  \"taken\": ", record.taken, ",\n  \"run\": ", record.run, ",\n  \"groups\": [", groups,
                  "],\n  \"calls\": [", calls, "]\n}\n");
}

}  // namespace shardkit::recorder

namespace shardkit::detail {

/// Reads what `to_json` wrote.
/// @throws JsonError for any other text
inline recorder::RankRecord record_of(std::string_view text) {
    recorder::RankRecord record;
    const auto files = std::make_shared<std::forward_list<std::string>>();
    record.files = files;
    std::string format;
    std::vector<std::pair<std::string, std::shared_ptr<const std::vector<std::size_t>>>> groups;
    JsonReader json(text);
    const auto group = [&] {
        std::string axes;
        std::vector<std::size_t> members;
        json.object([&](const std::string& key, std::size_t) {
            if (key == "axes") {
                axes = json.string();
            } else {
                json.array([&] { members.push_back(json.number()); });
            }
        });
        groups.emplace_back(axes, std::make_shared<const std::vector<std::size_t>>(std::move(members)));
    };
    const auto call = [&] {
        recorder::RecentCall& made = record.calls.emplace_back();
        Signature& s = made.signature;
        json.object([&](const std::string& key, std::size_t begin) {
            const std::pair<const char*, std::uint64_t*> numbers[] = {
                {"number", &made.number}, {"sequence", &made.sequence}, {"argument", &s.argument},
                {"given", &made.given},   {"begun", &made.begun},       {"done", &made.done}};
            for (const auto& [field, value] : numbers) {
                if (key == field) {
                    *value = json.number();
                    return;
                }
            }
            if (key == "group") {
                const std::uint64_t which = json.number();
                if (which >= groups.size()) { JsonReader::fail_at(begin, "a group that is not listed"); }
                made.axes = groups[which].first;
                made.members = groups[which].second;
            } else if (key == "verb") {
                s.verb = named<Verb, verb_count>(json, json.string());
            } else if (key == "in") {
                s.in = named<ElementType, static_cast<std::size_t>(ElementType::uint8) + 1>(json, json.string());
            } else if (key == "out") {
                s.out = named<ElementType, static_cast<std::size_t>(ElementType::uint8) + 1>(json, json.string());
            } else if (key == "op") {
                s.op = named<ReduceOp, static_cast<std::size_t>(ReduceOp::tree_sum) + 1>(json, json.string());
            } else if (key == "count") {
                s.count = json.number();
            } else if (key == "bytes") {
                made.payload = json.number();
            } else if (key == "for") {
                made.subject = json.string();
                s.subject = made.subject.empty() ? 0 : engine::CallSubject::hash_of(made.subject);
            } else if (key == "file") {
                made.where.file = files->emplace_front(json.string()).c_str();
            } else if (key == "failed") {
                made.failed = json.number() != 0;
            } else if (key == "step") {
                made.step = static_cast<std::uint32_t>(json.number());
            } else if (key == "line") {
                made.where.line = static_cast<std::uint32_t>(json.number());
            } else {
                json.skip_value();
            }
        });
    };
    json.object([&](const std::string& key, std::size_t) {
        if (key == "format") {
            format = json.string();
        } else if (key == "engine") {
            record.engine = json.string();
        } else if (key == "rank") {
            record.rank = json.number();
        } else if (key == "ranks") {
            record.ranks = json.number();
        } else if (key == "why") {
            record.why = json.string();
        } else if (key == "ended") {
            record.ended = json.number() != 0;
        } else if (key == "taken") {
            record.taken = json.number();
        } else if (key == "run") {
            record.run = json.number();
        } else if (key == "groups") {
            json.array(group);
        } else if (key == "calls") {
            json.array(call);
        } else {
            json.skip_value();
        }
    });
    json.end();
    if (format != record_format) { JsonReader::fail_at(0, "no flight record of a rank"); }
    return record;
}

}  // namespace shardkit::detail
