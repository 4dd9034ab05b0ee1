// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "verb_oracle.hpp"

/// Where the checks' values lie, and what stream their verbs are given.
namespace verb_values {

/// An engine whose streams have a default and whose memory is the host's. Specialise it for another engine: `stream`,
/// the order of an all-reduce's sums, and a Memory<T> of the host span's size in the engine's memory, whose `write`
/// copies the host's values into it, and whose `read` copies them back once the verbs that were given to the stream
/// are done.
template <class C>
struct Bench {
    static shardkit::Stream stream(const C&) { return {}; }
    static constexpr verb_oracle::Order all_reduce_order = verb_oracle::Order::upwards;

    template <class T>
    class Memory {
      public:
        Memory(const C&, std::span<T> host) : host_(host) {}
        T* data() const { return host_.data(); }
        void write(std::span<const T>) {}
        void read(std::span<T>) {}

      private:
        std::span<T> host_;
    };
};

/// Guarded values for verbs: `span` and `view` are the engine's memory, everything else looks at the host's copy of
/// it.
template <class T, class C>
class Values {
  public:
    Values(const C& comm, std::size_t size, std::size_t offset)
        : host_(size, offset), offset_(offset), size_(size), engine_(comm, host_.whole()) {}
    Values(Values&&) noexcept = default;
    Values& operator=(Values&&) = delete;

    std::span<T> span() {
        if (newest_ == Side::host) { engine_.write(host_.whole()); }
        newest_ = Side::engine;
        return {engine_.data() + offset_, size_};
    }
    std::span<const T> view() { return span(); }
    T& operator[](std::size_t i) {
        look();
        return host_[i];
    }
    bool margins_intact() {
        look();
        return host_.margins_intact();
    }

  private:
    enum class Side { host, engine };

    void look() {
        if (newest_ == Side::engine) { engine_.read(host_.whole()); }
        newest_ = Side::host;
    }

    verb_oracle::Guarded<T> host_;
    std::size_t offset_;
    std::size_t size_;
    typename Bench<C>::template Memory<T> engine_;
    Side newest_ = Side::host;
};

/// Rank `rank`'s input for verbs over `comm`.
template <class T, class C>
Values<T, C> input(const C& comm, std::size_t rank, std::size_t size, std::size_t offset) {
    Values<T, C> values(comm, size, offset);
    T* const first = &values[0];
    for (std::size_t i = 0; i < size; ++i) { first[i] = verb_oracle::value<T>(rank, i); }
    return values;
}

}  // namespace verb_values
