// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include <shardkit/backend/host/copy_elements.hpp>

#include "verb_oracle.hpp"

using namespace shardkit;

namespace copy_elements_test {

using verb_oracle::Guarded;

TEST_CASE("stream elements: every size and alignment is copied, and nothing beside it") {
    for (std::size_t offset = 0; offset < 70; ++offset) {
        for (std::size_t size = 0; size < 260; size += size < 140 ? 1 : 17) {
            Guarded<std::uint8_t> from(size, offset % 7);
            Guarded<std::uint8_t> to(size, offset);
            for (std::size_t i = 0; i < size; ++i) { from[i] = verb_oracle::value<std::uint8_t>(1, i); }
            host::detail::copy_elements(from.view().data(), to.span().data(), size, host::detail::Store::streaming);
            host::detail::finish(host::detail::Store::streaming);
            bool same = to.margins_intact();
            for (std::size_t i = 0; i < size; ++i) { same = same && to[i] == from[i]; }
            REQUIRE(same);
        }
    }
    host::detail::copy_elements<float>(nullptr, nullptr, 0, host::detail::Store::streaming);
    host::detail::copy_elements<float>(nullptr, nullptr, 0, host::detail::Store::cached);
}

TEST_CASE("stream elements: only what exceeds the caches is streamed") {
    CHECK(host::detail::store_for(0) == host::detail::Store::cached);
    CHECK(host::detail::store_for(host::detail::streaming_bytes) == host::detail::Store::cached);
    CHECK(host::detail::store_for(host::detail::streaming_bytes + 1) == host::detail::Store::streaming);
}

}  // namespace copy_elements_test
