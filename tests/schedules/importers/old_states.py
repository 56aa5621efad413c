"""Job states that older releases of APScheduler wrote, with zones of pytz and of the wrapper around it.

APScheduler 3.6.3 and 3.10.4 with pytz and tzlocal 4, Python 3.11: base 85 of `pickle.dumps(job.__getstate__())`.
"""

import base64

# CronTrigger(day="2nd fri", hour=9, timezone=pytz.timezone("Europe/Berlin"), start_date=2090-01-01 there)
CRON_3_6 = base64.b85decode(
    "fCZH^1ONa40001elqie`c4cyNX>V?nO96}mX=Id)18;0(l#B#sb#7ynj0|jVXJ=_{XF6$aW^a^?2Xu02XJ=({l#Cf+aC2j5Wn^`1"
    "WpXZba%pF0WpZ;aV{&h9l#B~Qa&K-_a%pF0Wpb30lqrFfeUvC@0ZRgm2y|&}WqNOJWt5BraCvlkl#BvjaFmmjD2xq7b#iZTWiLWy"
    "a%^dCluc|5O8|@mOifgjbd*w*j0$sfVRCd|WMOn=l#B>uVRU75X>Dbcj0j|5bY*mDZDo{`ltT&#Dggli000000F-DCC}<E(5DrTK"
    "i~~bORFrg-Qj~_2Qk0AcWo~3&WMOn=lunEWW@%+?WOI~VlqifKVQ_O}Xk}z|Y-MsTbaH8DXJvA8E@N_UZZ2kNWo%?~l#B^NVRL0h"
    "X=Q9=l#`Sxfs}oeD2xPdVQpoUj0AaQVRDp=3Tbm+WMyVyb!>E$h>QzmcyMxMb8~5LZgZ4fl#C@|aC2j5Wn^`1WpXZba%pF0WpZ;a"
    "V{&h9E@gOda%FRKX>V?Gl#C5QY-~k%aB^jHb7^mGl#`Sxfs}oej0AIZWpI>Eb7En2VrU_Z3QccrbZACtWo%@Wlawielzo&aXeNvW"
    "ZEtRLXq0Fuh-fKYlxQs}fs}oeXfRH5VqtY+Xd#RbL}7VPW=(HybZACtWo%@Wlawielzo&aXeNvUWMO%fXefzjDP5FkD~uUeWo2t*"
    "VR=w*b7^#GZ*E0+aB^jHb7^mGl#`Sxfs}oeC}=QFj0$gXbZKvHUv716luH4O2X|#<Yh+=0luHD4VqtY+Xd#RVS7l{uMrmbiWR#PX"
    "DS?!IlqhH>j0AUOWowjZD2Qk&U6g1oDS?!IlxQ$cb7En2VrU_Z4n$#jPi9wTWot%hWo%@Wlawielzo&aXeNvcWMO$<Z)RV2Wo2uW"
    "XefwiDP5FkEh&MNeUxZ0PIF>mbz*2EDS?!IlqhH>j09+Jb#jzwD2Zq(U6g1mj1N*_Zf9jhcyMxMb8~5LZj_UhDS?!IlqhI0PK*U+"
    "X>xOPluHSW1Z-h*bd*a8bz)(4VrU~Nfs}oeC}<{(25o6>b#!HvXefwiDP5FkS}B2)eUvC@FivP)O8{tIO8|9ZVRd3?BPoHDeUvC@"
    "CX5DiWn*t{WRz$qh-fKYlxSKhfs}oeC}=QFXkAMHXkJSIbz)(4Vr7g5YH4(IWpb2Gbz+PNWq4&{b#!lXl#B;tWoBV@Y;=^21YvS#"
    "bCfBJ25Wa=a%XdteUyv?ZF6Uoi~)F*b7&@v1Zi$&Z<LG@ZE166X>w&>XL4a<WnXk@ZDo{8Jd6lqZ((d@b7N(ch>Q(wVR&C@ZgX^D"
    "ZewM0luH4O4Q^$4bYF6HZeMh1ZDo{b7efjNDgg}%000000F-DOhLlp2buI"
)

# IntervalTrigger(days=1, timezone=pytz.UTC, start_date=2090-07-01 12:00)
INTERVAL_3_6 = base64.b85decode(
    "fCZJ60RR910001elqie`c4cyNX>V?nO96}mX=Id)18;0(l#B#sb#7ynj0|jVXJ=_{XF6$aW^a^?2Xu02XJ=({l#Cr=aC2j5Wn^`1"
    "WpXZba%pF0WpZ;aX>N37a&}>Cl#CBaZggdGc42H(a%pF0Wpb30lqrFfeUvC@0ZRgm2y|&}WqNOJWt5BraCvlkl#B#lRa8Tilawh^"
    "l#B{<bYXIIUu0o)Wt5BvWMOn=bZKp6l#B>uVRU75X>DbclaxaW2r35w3;+NC005L|5Qdael#B>vZe(9%VRU7bPK*d?ZggdGc42Ik"
    "XcCMGbZKp6WMyo0VU&}UO94v&O8|$IQk0AaYH4(IWpb2Gbz+PNWq4&{b#!lXl#B;tWoBV@Y;=^21YvS#bCfBJ25Wa=a%XdteUyv?"
    "ZF6Uoi~)F*bBqLTVQpoUj09<JW^a^?5^ZU7W@&O|UuSY*V`X1-X>DbcOFWDSV{c(>WpiU?l!%NCZDDv{X>N0LVQyn(bCgQ~j16vO"
    "cywQKb#7mDX>DbcXcu)Z"
)

# DateTrigger(2090-07-01 12:00 in pytz.FixedOffset(120))
DATE_3_10 = base64.b85decode(
    "fCZIJ0RR910001elqie`c4cyNX>V?nO96}mX=Id)18;0(l#B#sb#7ynj0|jVXJ=_{XF6$aW^a^?2Xu02XJ=({l#Cf+aC2j5Wn^`1"
    "WpXZba%pF0WpZ;aWMOn=l#B~RVRU6wa%pF0Wpb30lqrFfeUvC@0ZRdl2y%69Uu0o)Wt5BvWMOn=bZKp6l#B>uVRU75X>DbclaxaW"
    "2r35w3;+NC005MX1aNtDdX$U{Mrn9uWKU*hb7gdtlaxz%g_Kg1hLlp2bz+PNWq4&{b#!lXl#B;tWoBV@Y;=^21YvS#bCfBJ25Wa="
    "a%XdteUyv?ZF6Uoi~)F*bBqLTVQpoUj09<JW^a^?5^ZU7W@&O|UuSY*V`X1-X>DbcOFWDSV{c(>WpiU?l!%NCZDDv{X>N0LVQyn("
    "bCgQ~j16vOcywQKb#7mDX>DbcXcu)Z"
)

# CronTrigger(hour=9, minute=30) on a machine in Riga: the zone is wrapped
LOCAL_3_10 = base64.b85decode(
    "fCZH*1ONa40001elqie`c4cyNX>V?nO96}mX=Id)18;0(l#B#sb#7ynj0|jVXJ=_{XF6$aW^a^?2Xu02XJ=({l#Cf+aC2j5Wn^`1"
    "WpXZba%pF0WpZ;aV{&h9l#B~Qa&K-_a%pF0Wpb30lqrFfeUvC@0ZRgm2y|&}WqNOJWt5B?aCvlkUu0!)a%E#-bZKvHUvp?_Z7yGF"
    "ZE$Rqj0tygVQ^o1Z*FCjla!1IVs&Y3bZKsLl#B;wWprV5baIrFl#B>^Z*FC2Zf0+kj0jq9Ze>YsW^a^}l#B^qb#8EJV{2?>l!la2"
    "l#B~Sb#iZTWiL``XJM2}0fv-PlxP`-lv0$83UhQ}a&%v0VRU7bPK*d;Ze(9%VRU7bPK*X-X=Q9=bCg|_D2yOsaC2j5Wn^`1WpXZb"
    "a%pF0WpZ;aV{&h9E@o+EY-Dqkj0r+vb7e+pWo%@Wlawielzo&aj0A3BZDo{<1bJm)a+Hh;X>(s>WoBV@Y;=@}j0<IWaB^jHb7^mG"
    "bCg|_j3r@kb7N>_WOZz1axQdoX=i6;a&s<Ya&K-fWq5FMWpi_BZ*Fsxj156-Y(;o*a%FRKX>V?nlawielzo(p1aov{aFkASVqtY+"
    "Xd;XXO>b^=XhvyeY-E&^lqrFfeUvC@CyWJcZ*FvGlxQi4XewQlXf7#%lzo(FF-~)0VRd3?B8(42VR=txO>b^=XhvyeY-E&^lqrFf"
    "eUvC@CyWDRVR@8jDTrt)U6g1pDS?!IlxQ(db7En2VrU|a30GxhYes2hY-E&^lqrFfeUvC@CyWGlWo2uWXeo$jDqWOlE-8VOeUxZ1"
    "PIF>mbz*2Dj1EL$c~53nWo2tdX=Q9=l#`Sxfs}oeC}<~)3uIw=UvFk#cV%U3lxQi4XewQlXf7#%lzo(FF-~)0VRd3?Bq@QEeUvC@"
    "CyWGWZ*_8%Xeo(kDqWOlEQ}9QVQyz-MR;&>Wpi_BZ*G*6lqrFfeUvC@F;0vHW@&PBbd*a8j09|9b99tT33Xy&bz*2FDS?!IlqhH?"
    "j0SCKZgq5JlxQi5XewQlXjdtLlzo&aXfaM`T1y^iTT32wVqtY+Xe23tlzo&aXeW#Yb7f<1Ze)~bDTrt)U6g27DS?!IlqhI1PH0+7"
    "0BBoF0Ci$vbz)_V25M<^bY*gsPIY382xWL>V|8?Ia+Hh*WMyVyb!>E$j09nFXLFP(j0S6WVRC14lzo(p18s9>l#Bs*lyhh&j09<J"
    "W^a^?5^ZU7W@&O|UuSY*V`X1-X>DbcOFWDSV{c(>WpiU?l!%NCZDDv{X>N0LVQyn(bCgQ~j16vOcywQKb#7mDX>Dbcj0j|5bY*mD"
    "ZDo{<2xMV&Wprt6Wt5YYLkb7#3l9k%00000lxQ7>lv0#+E&"
)
