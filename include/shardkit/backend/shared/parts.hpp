// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <shardkit/backend/shared/wait_word.hpp>

namespace shardkit::shared::detail {

/// The work of a collective, which the ranks that come to it do for all: a part for each rank, in pieces. A rank
/// begins with its own part and goes on with what nobody has taken of the others', so it waits for no rank that
/// computes.
class Parts {
  public:
    explicit Parts(std::size_t ranks) : taken_(std::make_unique<Taken[]>(ranks)) {}

    /// What one rank adds to it.
    static constexpr std::size_t rank_bytes() noexcept { return sizeof(Taken); }

    /// For each rank of the next collective, before it enters. @pre all have left the last one
    void begin(std::size_t rank) noexcept {
        taken_[rank].pieces.store(0, std::memory_order_relaxed);
        if (rank == 0) { done_.store(0, std::memory_order_relaxed); }
    }

    /// Calls work(part, piece) for what nobody has taken; returns when all is done, whoever has done it. What it
    /// wrote is then there for all.
    template <class Work>
    void do_pieces(std::size_t rank, std::size_t parts, std::size_t pieces, Work work) noexcept {
        std::uint32_t own = 0;
        for (std::size_t i = 0; i < parts; ++i) {
            const std::size_t part = (rank + i) % parts;
            std::atomic<std::uint32_t>& taken = taken_[part].pieces;
            for (std::size_t piece = taken.fetch_add(1, std::memory_order_relaxed); piece < pieces;
                 piece = taken.fetch_add(1, std::memory_order_relaxed)) {
                work(part, piece);
                ++own;
            }
        }
        if (done_.fetch_add(own, std::memory_order_acq_rel) + own == parts * pieces) { done_.notify_all(); }
        await(parts * pieces);
    }

  private:
    void await(std::size_t all) const noexcept {
        for (std::uint32_t done = done_.load(std::memory_order_acquire); done < all;
             done = done_.load(std::memory_order_acquire)) {
            done_.wait(done, std::memory_order_acquire);
        }
    }

    struct alignas(padding) Taken {
        std::atomic<std::uint32_t> pieces{0};
    };

    std::unique_ptr<Taken[]> taken_;
    alignas(padding) std::atomic<std::uint32_t> done_{0};
};

}  // namespace shardkit::shared::detail
