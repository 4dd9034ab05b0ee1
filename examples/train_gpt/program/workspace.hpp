// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/rank/rank.hpp>

#include "../model/pass.hpp"
#include "engine_links.hpp"
#include "options.hpp"
#include "tokens_ahead.hpp"

namespace train_gpt {

/// Everything that a rank's model computes with besides what the library holds: activations, scratch, the tokens of a
/// step, and losses. One block of memory, taken before the first step, of the engine's, whose peers see it: tp and
/// cp communicate out of it.
template <class T, class Place>
class Workspace {
  public:
    using OfPass = Pass<T, Place>;

    /// Exactly what a workspace allocates.
    static std::size_t bytes(const Options& options, const Place& place = {}) {
        Arena counter;
        take_numbers(counter, options);
        const Split split = options.split();
        return counter.used() + OfPass::bytes(options.model, split, split.local(options.pass_shape()), place);
    }

    Workspace(const shardkit::Rank& rank, const Options& options, Links<typename OfPass::S>& links,
              const Place& place)
        : memory_(rank.template buffer<std::uint8_t>(bytes(options, place))),
          arena_(reinterpret_cast<std::byte*>(memory_.data()), memory_.size()),
          numbers_(take_numbers(arena_, options)),
          of_pass_(tokens_of_step(options) / options.microbatches / 2),
          pass_(options.model, split_of(rank, options), options.split().local(options.pass_shape()), links, arena_,
                place) {}

    OfPass& pass() noexcept { return pass_; }
    /// Of microbatch m.
    Token* tokens(std::size_t m) noexcept { return numbers_.tokens + 2 * m * of_pass_; }
    Token* targets(std::size_t m) noexcept { return tokens(m) + of_pass_; }
    /// [1 + every, microbatches]: those of the step that is made, and of the newest steps.
    std::span<double> losses() const noexcept { return numbers_.losses; }
    /// [every]
    std::span<double> sums() const noexcept { return numbers_.sums; }

  private:
    struct Numbers {
        Token* tokens;  // [microbatches, tokens | targets]
        std::span<double> losses, sums;
    };
    static Numbers take_numbers(Arena& arena, const Options& options) {
        const auto doubles = [&](std::size_t count) { return std::span(arena.take<double>(count), count); };
        auto* const tokens = arena.take<Token>(tokens_of_step(options));
        const auto losses = doubles((1 + options.every) * options.microbatches);
        return {tokens, losses, doubles(options.every)};
    }

    shardkit::HostBuffer<std::uint8_t> memory_;
    Arena arena_;
    Numbers numbers_;
    std::size_t of_pass_;
    OfPass pass_;
};

}  // namespace train_gpt
