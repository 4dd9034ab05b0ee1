// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/global_norm.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/step_options.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/group_ref.hpp>

// What a trainer's file calls in the compiled form: objects and functions of the core, which compiled.hpp defines in
// one source file of the program, or a library. Nothing here depends on a trainer's types: an engine, a precision, a
// policy and a group's parameters come as values.

namespace shardkit SHARDKIT_CHECKED_BUILD {
class Model;
}
namespace shardkit SHARDKIT_FACE {
class Rank;
class Accumulation;
class Reduced;
class LossScale;
class Optimizer;
}  // namespace SHARDKIT_FACE

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// An object of the core.
class Object {
  public:
    virtual ~Object() = default;
    Object(Object&&) = delete;

  protected:
    Object() = default;
};

/// Owns an object of the core.
template <class T>
class Handle {
  public:
    Handle() noexcept = default;
    explicit Handle(T* made) noexcept : object_(made) {}
    Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        Handle taken(std::move(other));
        std::swap(object_, taken.object_);
        return *this;
    }
    ~Handle() { delete object_; }

    T* get() const noexcept { return object_; }
    T& operator*() const noexcept { return *object_; }
    T* operator->() const noexcept { return object_; }

  private:
    T* object_ = nullptr;
};

}  // namespace SHARDKIT_CHECKED_BUILD
