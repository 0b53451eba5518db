// Sine and cosine of position * frequency. The product and the reduction are in f64, so that a position of a million still has
// the angle right; there are only `pairs` of them per row.
#pragma once
#include "gpu.h"

struct SinCos { float s, c; };

DEV SinCos rope_angle(i32 pos, float freq) {
    double x = (double)pos * (double)freq;
    double k = rint_d(x * 0.63661977236758134308); // 2 / pi
    double r = (x - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11; // pi / 2 in two parts
    double z = r * r;
    double s = r + r * z * (-1.66666666666666324348e-1 + z * (8.33333333332248946124e-3 + z * (-1.98412698298579493134e-4 + z * (2.75573137070700676789e-6 + z * -2.50507602534068634195e-8))));
    double c = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-2 + z * (-1.38888888888741095749e-3 + z * (2.48015872894767294178e-5 + z * -2.75573143513906633035e-7)));
    int quadrant = (int)((i64)k & 3);
    double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    SinCos out;
    out.s = (float)(quadrant & 2 ? -a : a);
    out.c = (float)((quadrant == 1 || quadrant == 2) ? -b : b);
    return out;
}
