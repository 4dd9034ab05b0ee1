// SPDX-License-Identifier: Apache-2.0
// expected-error: Shapes: a shape for a parameter that is not in the group
#include "model.hpp"

struct Wide : sk::Param<"wide", float, sk::dynamic> {};
struct Deep : sk::Param<"deep", float, sk::dynamic> {};

#ifdef REJECT
const sk::Shapes<sk::Params<Wide>> shapes{sk::shape<Wide>(8), sk::shape<Deep>(8)};
#else
const sk::Shapes<sk::Params<Wide>> shapes{sk::shape<Wide>(8)};
#endif
