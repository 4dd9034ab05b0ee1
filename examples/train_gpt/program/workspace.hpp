// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/context.hpp>

#include "../model/pass.hpp"

namespace train_gpt {

/// Everything that a rank's model computes with besides what the library holds: activations, scratch, and the
/// tokens of one pass. One block of memory, taken before the first step, of the engine's, whose peers see it: tp and
/// cp communicate out of it. `capacity` is a rank's part of a pass.
template <class T>
class Workspace {
  public:
    /// Exactly what a workspace for passes of `capacity` allocates.
    static std::size_t bytes(const ModelConfig& config, const Split& split, BatchShape capacity) {
        Arena counter;
        counter.take<Token>(capacity.tokens());
        counter.take<Token>(capacity.tokens());
        return counter.used() + Pass<T>::bytes(config, split, capacity);
    }

    template <class Engine>
    Workspace(const shardkit::Context<Engine>& context, const ModelConfig& config, const Split& split,
              BatchShape capacity, Links<Arithmetic<T>>& links)
        : memory_(context.template buffer<std::uint8_t>(bytes(config, split, capacity))),
          arena_(reinterpret_cast<std::byte*>(memory_.data()), memory_.size()),
          tokens_(arena_.take<Token>(capacity.tokens())),
          targets_(arena_.take<Token>(capacity.tokens())),
          pass_(config, split, capacity, links, arena_) {}

    Pass<T>& pass() noexcept { return pass_; }
    Token* tokens() noexcept { return tokens_; }
    Token* targets() noexcept { return targets_; }

  private:
    shardkit::HostBuffer<std::uint8_t> memory_;
    Arena arena_;
    Token* tokens_;
    Token* targets_;
    Pass<T> pass_;
};

}  // namespace train_gpt
