// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/context.hpp>

#include "../model/parameters.hpp"

namespace train_gpt {

namespace sk = shardkit;

/// A block's parameters out of gathered codes, in memory that all blocks share: the products of this program take
/// numbers, where those of a GPU take codes and scales.
template <class T>
class DecodedBlock {
    using Group = BlockGroup<T>;
    struct Tensor {
        const T* first;
        const T* data() const noexcept { return first; }
    };

  public:
    static constexpr std::size_t bytes(const ModelConfig& config) {
        const std::size_t c = config.width;
        return (12 * c * c + 13 * c) * sizeof(T);  // of 4 matrices and 8 vectors, whole also where tp splits them
    }

    DecodedBlock() = default;
    template <class Engine>
    DecodedBlock(const sk::Context<Engine>& context, const ModelConfig& config)
        : memory_(context.template buffer<T>(bytes(config) / sizeof(T))) {}

    template <class Window>
    void decode(const Window& window) {
        decode(window, std::make_index_sequence<Group::count>{});
    }
    template <class P>
    Tensor operator[](P) const noexcept {
        return {tensors_[Group::template index<P>]};
    }

  private:
    template <class Window, std::size_t... I>
    void decode(const Window& window, std::index_sequence<I...>) {
        T* to = memory_.data();
        const auto add = [&](std::size_t number, const auto& coded) {
            tensors_[number] = to;
            for (std::size_t i = 0; i < coded.size(); ++i) { to[i] = coded.decoded(i); }
            to += coded.size();
        };
        (add(I, window[typename Group::template At<I>{}]), ...);
    }

    sk::HostBuffer<T> memory_;
    std::array<const T*, Group::count> tensors_{};
};

}  // namespace train_gpt
