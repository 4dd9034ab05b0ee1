// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/rank/context.hpp>

// What is called where a file saves or loads and does not include checkpoint.hpp, which shardkit.hpp leaves out.

namespace shardkit::checkpoint SHARDKIT_BUILD {
template <class EngineType>
class State;
}  // namespace SHARDKIT_BUILD

namespace shardkit::detail {

template <class Engine>
concept WithoutCheckpoints = !requires {
    sizeof(checkpoint::State<Engine>);
};

template <class Engine>
struct NeedsCheckpoints {
    static constexpr bool are_included = sizeof(Engine) == 0;
    static_assert(are_included,
                  "saving and loading need another header beside shardkit.hpp: #include <shardkit/checkpoint.hpp>");
};

namespace misfit {
template <WithoutCheckpoints Engine>
void save(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
template <WithoutCheckpoints Engine>
void begin_save(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
template <WithoutCheckpoints Engine>
void load(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
template <WithoutCheckpoints Engine>
void save_model(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
template <WithoutCheckpoints Engine>
void load_model(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
template <WithoutCheckpoints Engine>
void latest(Context<Engine>& /*rank*/, auto&&... /*others*/) {
    static_cast<void>(NeedsCheckpoints<Engine>{});
}
}  // namespace misfit

}  // namespace shardkit::detail

namespace shardkit::checkpoint {

using detail::misfit::begin_save;
using detail::misfit::latest;
using detail::misfit::load;
using detail::misfit::load_model;
using detail::misfit::save;
using detail::misfit::save_model;

}  // namespace shardkit::checkpoint

namespace shardkit::checkpoint SHARDKIT_BUILD {

/// What State{model, ...} is without checkpoint.hpp: an error that says so, and no other one.
template <class Engine>
class State<detail::NeedsCheckpoints<Engine>> : detail::NeedsCheckpoints<Engine> {
  public:
    explicit State(auto&&... /*parts*/) {}
};
template <class First, class... Rest>
requires(detail::WithoutCheckpoints<typename First::Engine>) State(const First&, const Rest&...)
->State<detail::NeedsCheckpoints<typename First::Engine>>;

}  // namespace SHARDKIT_BUILD
