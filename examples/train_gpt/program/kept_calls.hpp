// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/recorder/rank_record.hpp>

#include "../../who_is_missing/read_record.hpp"
#include "names.hpp"

namespace train_gpt {

/// A rank's calls of its last 100 steps, of which the flight recorder has the newest.
class KeptCalls {
  public:
    /// Adds those of the recorder that are new, and over.
    void keep(std::vector<sk::recorder::RecentCall> recent) {
        for (sk::recorder::RecentCall& call : recent) {
            if (call.number < next_) { continue; }
            if (call.done == 0) { break; }
            next_ = call.number + 1;
            calls_.push_back(std::move(call));
        }
        while (!calls_.empty() &&
               (calls_.front().step == before_steps || calls_.front().step + most_steps <= calls_.back().step)) {
            begin_ = calls_.front().number + 1;
            calls_.pop_front();
        }
    }
    /// Returns them, the oldest first. Numbers begin at 0 unless the recorder had lost some before.
    std::vector<sk::recorder::RecentCall> kept() const {
        std::vector<sk::recorder::RecentCall> calls(calls_.begin(), calls_.end());
        for (sk::recorder::RecentCall& call : calls) { call.number -= begin_; }
        return calls;
    }

  private:
    static constexpr std::uint32_t most_steps = 100;
    static constexpr std::uint32_t before_steps = 0;

    std::deque<sk::recorder::RecentCall> calls_;
    std::uint64_t next_ = 0;
    std::uint64_t begin_ = 0;  // number of the call behind those that were dropped
};

/// Returns every rank's record, with these calls. Collective over the world.
inline std::vector<sk::recorder::RankRecord> gather_records(sk::Context& context,
                                                            std::vector<sk::recorder::RecentCall> calls) {
    const std::size_t ranks = context.world_size();
    const std::string text = to_json(sk::recorder::RankRecord{
        std::string(context.world().engine_name()), context.rank(), ranks, "", false, 0, std::move(calls), 0});
    const std::size_t most = sk::all_reduce_value(context, std::uint64_t{text.size()}, sk::ReduceOp::max);
    std::vector<std::uint8_t> mine(most, ' ');
    std::copy(text.begin(), text.end(), mine.begin());
    std::vector<std::uint8_t> all(most * ranks);
    sk::all_gather(context.world(), std::span<const std::uint8_t>(mine), std::span<std::uint8_t>(all),
                   context.compute_stream());
    std::vector<sk::recorder::RankRecord> records;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto* const begin = reinterpret_cast<const char*>(all.data() + rank * most);
        records.push_back(flight_records::record_of(std::string_view(begin, most)));
    }
    return records;
}

}  // namespace train_gpt
