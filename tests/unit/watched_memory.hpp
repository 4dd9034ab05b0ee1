// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/memory/host_buffer.hpp>

/// What is told of each piece of a rank's memory, by its bytes: before it is placed, and before it is freed. What
/// `local` false leaves out is that of its kernels alone.
struct MemoryWatch {
    std::function<void(std::size_t)> placing;
    std::function<void(std::size_t)> freeing = [](std::size_t) {};
    bool local = true;
};

/// The verbs of another engine of the host, whose ranks' memory is watched.
class WatchedVerbs : public shardkit::host::DecoratedVerbs {
  public:
    WatchedVerbs(std::shared_ptr<const Verbs> verbs, MemoryWatch watch)
        : DecoratedVerbs(std::move(verbs)), watch_(std::move(watch)) {}

    std::shared_ptr<void> place(std::size_t bytes) const override {
        return watched(DecoratedVerbs::place(bytes), bytes);
    }
    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        std::shared_ptr<void> memory = DecoratedVerbs::place_local(bytes);
        return watch_.local ? watched(std::move(memory), bytes) : memory;
    }

  protected:
    const MemoryWatch& watch() const noexcept { return watch_; }

  private:
    std::shared_ptr<void> watched(std::shared_ptr<void> memory, std::size_t bytes) const {
        watch_.placing(bytes);
        if (memory == nullptr) {
            const auto own = std::make_shared<shardkit::HostBuffer<std::uint8_t>>(bytes);
            memory = {own, own->data()};
        }
        void* const at = memory.get();
        return {at, [kept = std::move(memory), bytes, freeing = watch_.freeing](void*) { freeing(bytes); }};
    }
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const WatchedVerbs>(std::move(verbs), watch_);
    }

    MemoryWatch watch_;
};
