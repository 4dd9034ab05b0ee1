// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit {

/// How long a rank waits for others while this object lives, in place of the times in its engine's options:
/// `timeout`, and `finish_timeout` where there is one. Rank::deadline makes it. Of several, the one that was made
/// last counts. It is for each rank that waits in the phase; the one that lets the others wait needs none.
class [[nodiscard]] Deadline : detail::NotCopied {
  public:
    /// Begins for the rank with this journal; without one, the engine's waits have no limit, and none is set.
    /// @throws std::invalid_argument unless `limit` is positive
    Deadline(engine::Journal* journal, std::chrono::milliseconds limit, SourceLocation where) : journal_(journal) {
        if (limit.count() <= 0) {
            throw_invalid_argument(where, "deadline: ", limit.count(), " ms, expected at least 1");
        }
        if (journal_ != nullptr) { before_ = journal_->exchange_limit(limit.count()); }
    }
    ~Deadline() {
        if (journal_ != nullptr) { journal_->exchange_limit(before_); }
    }

  private:
    engine::Journal* journal_;
    std::int64_t before_ = 0;
};

}  // namespace shardkit
