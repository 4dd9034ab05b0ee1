// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Some ranks of a world, for what only these compare. The others call it too, and get the same.
class SomeRanks final : public RankWorld {
  public:
    /// @param members  ranks of `all`, in order
    SomeRanks(RankWorld& all, List<std::size_t> members) : all_(all), members_(std::move(members)) {}

    /// @pre this rank is a member
    std::size_t rank() const noexcept override {
        return static_cast<std::size_t>(std::find(members_.begin(), members_.end(), all_.rank()) - members_.begin());
    }
    std::size_t size() const noexcept override { return members_.size(); }
    Failure& untold() override { return all_.untold(); }
    List<std::uint64_t>& proven() override { return all_.proven(); }
    std::size_t member(std::size_t number) const noexcept override { return members_[number]; }

  protected:
    void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, SourceLocation where) override {
        const std::vector<std::byte> of_all = all_.gather(mine, where);
        for (std::size_t m = 0; m < members_.size(); ++m) {
            const auto from = std::span(of_all).subspan(members_[m] * mine.size(), mine.size());
            std::copy(from.begin(), from.end(), all.subspan(m * mine.size()).begin());
        }
    }

  private:
    RankWorld& all_;
    List<std::size_t> members_;
};

}  // namespace shardkit::detail
