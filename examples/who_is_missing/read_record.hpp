// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <forward_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/recorder/rank_record.hpp>

/// The flight records that ranks have written, read again.
namespace flight_records {

namespace sk = shardkit;

/// Returns the value of an enumeration by its name.
template <class Enum, std::size_t count>
Enum named(const sk::detail::JsonReader& json, std::string_view text) {
    for (std::size_t i = 0; i < count; ++i) {
        if (name(static_cast<Enum>(i)) == text) { return static_cast<Enum>(i); }
    }
    json.fail("a name that is not known: ", text);
}

/// Reads what `to_json` wrote.
/// @throws sk::detail::JsonError for any other text
inline sk::recorder::RankRecord record_of(std::string_view text) {
    sk::recorder::RankRecord record;
    const auto files = std::make_shared<std::forward_list<std::string>>();
    record.files = files;
    std::string format;
    std::vector<std::pair<std::string, std::shared_ptr<const std::vector<std::size_t>>>> groups;
    sk::detail::JsonReader json(text);
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
        sk::recorder::RecentCall& made = record.calls.emplace_back();
        sk::Signature& s = made.signature;
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
                if (which >= groups.size()) { sk::detail::JsonReader::fail_at(begin, "a group that is not listed"); }
                made.axes = groups[which].first;
                made.members = groups[which].second;
            } else if (key == "verb") {
                s.verb = named<sk::Verb, sk::detail::verb_count>(json, json.string());
            } else if (key == "in") {
                s.in =
                    named<sk::ElementType, static_cast<std::size_t>(sk::ElementType::uint8) + 1>(json, json.string());
            } else if (key == "out") {
                s.out =
                    named<sk::ElementType, static_cast<std::size_t>(sk::ElementType::uint8) + 1>(json, json.string());
            } else if (key == "op") {
                s.op = named<sk::ReduceOp, static_cast<std::size_t>(sk::ReduceOp::tree_sum) + 1>(json, json.string());
            } else if (key == "count") {
                s.count = json.number();
            } else if (key == "bytes") {
                made.payload = json.number();
            } else if (key == "for") {
                made.subject = json.string();
                s.subject = made.subject.empty() ? 0 : sk::engine::CallSubject::hash_of(made.subject);
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
    if (format != sk::detail::record_format) { sk::detail::JsonReader::fail_at(0, "no flight record of a rank"); }
    return record;
}

/// Reads a record from a file.
/// @throws sk::FileError
inline sk::recorder::RankRecord read_record(const std::string& path,
                                            sk::SourceLocation where = sk::SourceLocation::current()) {
    std::string text;
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) { throw sk::FileError(path, "cannot be opened", where); }
    char part[1U << 14U];
    for (std::size_t got = 0; (got = std::fread(part, 1, sizeof part, file)) > 0;) { text.append(part, got); }
    const bool whole = std::ferror(file) == 0;
    std::fclose(file);
    if (!whole) { throw sk::FileError(path, "cannot be read", where); }
    try {
        return record_of(text);
    } catch (const sk::detail::JsonError& error) {
        throw sk::FileError(path, sk::detail::concat("byte ", error.at, ": ", error.what), where);
    }
}

}  // namespace flight_records
