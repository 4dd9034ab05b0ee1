// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
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
[[gnu::cold]] inline std::string json_text(std::string_view text) {
    std::string copy(text);
    if (!is_utf8(text)) {
        for (char& c : copy) { c = static_cast<unsigned char>(c) < 0x80 ? c : '?'; }
    }
    return json_string(copy);
}

}  // namespace shardkit::detail

namespace shardkit::recorder {

/// Returns a record as JSON, with a line for each call.
[[gnu::cold]] inline std::string to_json(const RankRecord& record) {
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
