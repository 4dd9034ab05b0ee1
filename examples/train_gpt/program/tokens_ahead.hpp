// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/rank/rank.hpp>

#include "../model/convert.hpp"
#include "../model/place.hpp"
#include "options.hpp"

namespace train_gpt {

/// Tokens and targets of a rank's step.
inline std::size_t tokens_of_step(const Options& options) {
    return 2 * options.microbatches * options.split().local(options.pass_shape()).tokens();
}

/// The tokens of the next steps in the memory of a place that the host does not write, so that what gives a step its
/// own waits for nothing but where the next ones are copied there.
template <class Place>
class TokensAhead {
  public:
    /// What is allocated of the engine's memory.
    static std::size_t bytes(const Options& options) {
        return steps(options) * tokens_of_step(options) * sizeof(Token);
    }

    TokensAhead(const sk::Rank& rank, const Options& options)
        : stream_(rank.compute_stream()),
          of_step_(tokens_of_step(options)),
          on_host_(steps(options) * of_step_),
          memory_(rank.template local_buffer<std::uint8_t>(bytes(options))) {}

    /// Writes those of step `number` to `to`; fill(step, to) writes a step's on the host.
    template <class Fill>
    void load(std::size_t number, const Fill& fill, const Place& place, Token* to) {
        if constexpr (Place::tokens_ahead == 0) {
            fill(number, to);
        } else {
            const std::size_t steps = on_host_.size() / of_step_;
            if (!filled_ || number < first_ || number >= first_ + steps) {
                for (std::size_t s = 0; s < steps; ++s) { fill(number + s, on_host_.data() + s * of_step_); }
                // As bytes: these are no elements of the library's.
                sk::host::AnyKernels::copy_in(
                    stream_, std::span(reinterpret_cast<const std::uint8_t*>(on_host_.data()), memory_.size()),
                    std::span<std::uint8_t>(memory_.data(), memory_.size()));
                first_ = number;
                filled_ = true;
            }
            const auto* const there = reinterpret_cast<const Token*>(memory_.data());
            place.each(of_step_, Convert<Token, Token>{there + (number - first_) * of_step_, to});
        }
    }

  private:
    static std::size_t steps(const Options& options) {
        if (Place::tokens_ahead == 0) { return 0; }
        return std::clamp<std::size_t>(Place::tokens_ahead / tokens_of_step(options), 1, options.steps);
    }

    sk::Stream stream_;
    std::size_t of_step_;
    std::vector<Token> on_host_;           // [steps, microbatches, tokens | targets]
    sk::HostBuffer<std::uint8_t> memory_;  // likewise
    std::size_t first_ = 0;                // the step whose tokens it begins with
    bool filled_ = false;
};

}  // namespace train_gpt
