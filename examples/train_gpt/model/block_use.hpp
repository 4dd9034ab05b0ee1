// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include <shardkit/core/element.hpp>

namespace train_gpt {

/// A reference to a callable f(source, keys_values, d_keys_values) that works on one rank's keys and values; the
/// gradients are null in a forward pass. It owns nothing, so passing it takes no memory.
template <class S>
class BlockUse {
    using A = shardkit::Arithmetic<S>;

  public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, BlockUse>) BlockUse(const F& f)
        : object_(&f), call_([](const void* object, std::size_t source, const S* block, A* d_block) {
              (*static_cast<const F*>(object))(source, block, d_block);
          }) {}

    void operator()(std::size_t source, const S* block, A* d_block) const { call_(object_, source, block, d_block); }

  private:
    const void* object_;
    void (*call_)(const void*, std::size_t, const S*, A*);
};

}  // namespace train_gpt
